"""``python -m benchmarks.reproduce``: verify the divergences, audit the bundled tokens, compare clip rules, write the report.

Writes report.html, one file that needs nothing else, and report.json. Exit status: 0 done, 1 a verification failed or an
experiment broke off, 2 wrong usage.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import tyro
from rich.console import Console

from bandtheory.processor import usable_cores
from benchmarks import parallel
from benchmarks.environment import describe, json_bytes, one_thread_each, write_together
from benchmarks.experiments import Outcome, audit_example, compare_rules, verify_divergence
from benchmarks.report_html import page
from benchmarks.verdict import claims, verdict, verified

AUDIT_RULES = ("clip", "clip_higher", "dcpo", "band:kl:0.05:10", "band:tv:0.05:10", "band:pearson_chi2:0.05:10")


class ReproduceError(ValueError):
    """Arguments that cannot be used; the message names the argument, the value and what is accepted."""


@dataclass(frozen=True)
class Settings:
    """Verify the shipped divergences, audit the bundled tokens, compare clip rules on the bandit, and write the report."""

    out: Path = Path("out")
    """Directory for report.html and report.json."""
    divergences: tuple[str, ...] = ()
    """Catalogue names, or expressions in u. When empty: the whole catalogue, families at two values of their parameter."""
    effort: Literal["quick", "default", "deep"] = "default"
    """How many inputs each check of a verification covers."""
    seed: int = 0
    """Of the random inputs of the verification, and the first seed of the comparisons."""
    seeds: int = 10
    """Paired runs of each comparison."""
    steps: int | None = None
    """Steps of each comparison. Default: those of the trainer, 200 with a signal and 100 with a coin."""
    workers: int = 2
    """Processes, at most as many as there are cores."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run everything and return the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    settings = tyro.cli(Settings, prog="python -m benchmarks.reproduce", args=given)
    return parallel.exit_status(lambda: reproduce(settings, given))


def reproduce(settings: Settings, arguments: Sequence[str]) -> int:
    """Run everything, write the report, say where it is and what came out."""
    _check(settings)
    started = time.perf_counter()
    one_thread_each()
    workers = min(settings.workers, usable_cores())
    jobs = plan(settings)
    console = Console(emoji=False, highlight=False)
    print(f"{len(jobs)} experiments in {workers} {'process' if workers == 1 else 'processes'}", flush=True)
    with parallel.display(len(jobs), console) as display:
        outcomes = parallel.run(jobs, workers, display)
    seconds = time.perf_counter() - started
    results = collect(outcomes) | {"run": describe("benchmarks.reproduce", arguments) | {"seconds": round(seconds, 1)}}
    figures = {name: image for outcome in outcomes.values() for name, image in outcome.figures.items()}
    target = settings.out / "report.html"
    write_together({target: page(results, figures).encode(), settings.out / "report.json": json_bytes(results)})
    print(f"report: {target} (data: {settings.out / 'report.json'})")
    print(f"verdict: {results['verdict']}", flush=True)
    return 0 if results["passed"] else 1


def plan(settings: Settings) -> dict[str, parallel.Job[Outcome]]:
    """All experiments by name, the longest first, so that the processes end at about the same time."""
    from bandtheory.catalogue import examples

    options: dict[str, Any] = {"seeds": settings.seeds, "seed": settings.seed, "steps": settings.steps}
    verifications: dict[str, parallel.Job[Outcome]] = {
        f"verify {name}": partial(verify_divergence, name, settings.effort, settings.seed)
        for name in settings.divergences or examples()
    }
    return {
        "compare rules, correct actions rewarded": partial(compare_rules, "correct", options),
        **verifications,
        "compare rules, coin for a reward": partial(compare_rules, "coin", options),
        "audit bundled tokens": partial(audit_example, AUDIT_RULES),
    }


def collect(outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    """What report.json holds, except for how it was run."""
    results: dict[str, Any] = {
        "verification": [outcome.record for name, outcome in outcomes.items() if name.startswith("verify ")],
        "audit": outcomes["audit bundled tokens"].record,
        "correct": outcomes["compare rules, correct actions rewarded"].record,
        "coin": outcomes["compare rules, coin for a reward"].record,
    }
    found = claims(results)
    summary = {"passed": verified(results["verification"]), "verdict": verdict(found)}
    return {**summary, "claims": [asdict(claim) for claim in found], **results}


def _check(settings: Settings) -> None:
    """Refuse what cannot work before minutes of work, not after."""
    from bandtheory.divergence import unchecked_divergence

    for name in settings.divergences:
        unchecked_divergence(name)
    for name, value, least in (("seed", settings.seed, 0), ("seeds", settings.seeds, 2), ("workers", settings.workers, 1)):
        if value < least:
            raise ReproduceError(f"{name} is {value}; accepted: an integer of at least {least}")
    if settings.steps is not None and settings.steps < 1:
        raise ReproduceError(f"steps is {settings.steps}; accepted: an integer of at least 1")
    existing = settings.out.absolute()
    while not existing.exists():
        existing = existing.parent
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise ReproduceError(f"out is {str(settings.out)!r}, but {str(existing)!r} cannot be written; accepted: a directory")


if __name__ == "__main__":
    sys.exit(main())
