"""What the report is made of: each experiment is a function that a process of its own can run, and returns plain data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bandtheory.rules import Rule

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Outcome:
    """The result of one experiment.

    Attributes:
        record: what goes into report.json, plain values only.
        figures: PNG images by name.
    """

    record: dict[str, Any]
    figures: dict[str, bytes] = field(default_factory=dict)


def verify_divergence(name: str, effort: str, seed: int, progress: Progress) -> Outcome:
    """Every check of `bandtheory.verify` on one divergence, and what was derived from its generator if that is sound."""
    from bandtheory.derivation import derive
    from bandtheory.divergence import divergence
    from bandtheory.evidence.properties import PROPERTIES
    from bandtheory.evidence.verification import verify
    from bandtheory.listings import derivation_dict, summary

    done, expected = 0, len(PROPERTIES) + 4  # the generator and what sympy derived make four checks

    def count(*_: object) -> None:
        nonlocal done
        done += 1
        progress(done, max(expected, done))

    report = verify(name, effort=effort, seed=seed, progress=count)
    derived = None
    if report.passed:
        derived = summary(divergence(name)) | {"derivation": derivation_dict(derive(name))}
    return Outcome({**report.to_dict(), "derived": derived})


def audit_example(rules: Sequence[str], progress: Progress) -> Outcome:
    """What each rule would have clipped in the bundled tokens; and the two figures that show the rules themselves."""
    from bandtheory.audit import audit, example_path
    from bandtheory.plots import audit_figure, render, rules_figure

    path = example_path()
    report = replace(audit(path, rules, progress=progress), source=path.name)  # not where it happens to be installed
    figures = {"audit": audit_figure(report), "rules": rules_figure(rules)}
    return Outcome(report.to_dict(), {name: render(figure, "png") for name, figure in figures.items()})


def compare_rules(reward: str, options: dict[str, Any], progress: Progress) -> Outcome:
    """The bandit comparison of clip rules with one kind of reward; `options` are fields of `trainer.config.CompareConfig`."""
    from bandtheory import rules as clip_rules
    from bandtheory.plots import render
    from trainer.compare import compare
    from trainer.config import CompareConfig
    from trainer.figures import draw
    from trainer.summary import FIRST_STEPS

    comparison = compare(CompareConfig(reward=reward, threads=1, **options), progress)  # type: ignore[arg-type]
    record = comparison.summary_record() | {"first_steps": FIRST_STEPS}
    for row in record["rows"]:
        row["band"] = is_band(clip_rules.parse(row["rule"]))
    return Outcome(record, {reward: render(draw(comparison), "png")})


def is_band(rule: Rule) -> bool:
    """Whether the claim about bands is a claim about this rule."""
    from bandtheory.rules import Band

    return isinstance(rule, Band)
