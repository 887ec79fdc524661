"""One comparison of clip rules: run every rule, learning rate and seed as one batch, keep the curves, write them down."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bandtheory import rules as clip_rules
from trainer import loop
from trainer.bandit import PairedRandomness, bandit
from trainer.config import CompareConfig, ConfigError
from trainer.files import write_together
from trainer.metrics import PolicyMetrics, measure
from trainer.statistics import Array
from trainer.summary import Row, rows, sentences

Progress = Callable[[int, int], None]  # called with (steps done, steps in all)

POLICY_CURVES = ("entropy", "accuracy", "effective_correct")
CLIP_CURVES = ("clipped_up", "clipped_down")


@dataclass(frozen=True)
class Comparison:
    """What came out. Arrays are float64, ``(T, R, L, S)``: time, rules, learning rates and seeds, in the order of the config.

    Attributes:
        config: the resolved configuration.
        entropy, accuracy, effective_correct: see ``metrics.PolicyMetrics``; T = steps + 1, the first is the initial policy.
        clipped_up, clipped_down: see ``loop.ClipFractions``; T = steps.
        seconds: wall-clock time of the training.
    """

    config: CompareConfig
    entropy: Array
    accuracy: Array
    effective_correct: Array
    clipped_up: Array
    clipped_down: Array
    seconds: float

    @cached_property
    def rows(self) -> list[Row]:
        """One line per learning rate and rule: final values and paired differences to the baseline."""
        return rows(self)

    @cached_property
    def sentences(self) -> list[str]:
        """In plain words, where bands keep more entropy than the baseline at equal accuracy and where not."""
        return sentences(self)

    def curve(self, name: str, rule: int, rate: int) -> Array:
        """One metric of one rule and learning rate (given by index) over time: ``(T, S)``."""
        curve: Array = getattr(self, name)[:, rule, rate, :]
        return curve

    def metrics_record(self) -> dict[str, Any]:
        """What metrics.json holds: means over seeds at every step, and the final values of every seed."""

        def table(cell: Callable[[str, int, int], Any], name: str) -> dict[str, Any]:
            return {
                f"{rate:g}": {rule: cell(name, i, j) for i, rule in enumerate(self.config.rules)}
                for j, rate in enumerate(self.config.learning_rates)
            }

        def per_step(name: str, i: int, j: int) -> Any:
            return _short(self.curve(name, i, j).mean(-1))

        def final(name: str, i: int, j: int) -> dict[str, Any]:
            last = self.curve(name, i, j)[-1]
            return {"mean": _short(last.mean()), "per_seed": _short(last)}

        return {
            "config": config_record(self.config),
            "layout": "per_step and final: metric, learning rate, rule. Policy metrics start with the initial policy (step 0), "
            "clip fractions with the first step. Entropy in nats, everything else a fraction or a number of actions.",
            "per_step": {name: table(per_step, name) for name in (*POLICY_CURVES, *CLIP_CURVES)},
            "final": {name: table(final, name) for name in POLICY_CURVES},
        }

    def summary_record(self) -> dict[str, Any]:
        """What summary.json holds: the table, and the findings in words."""
        return {
            "config": config_record(self.config),
            "versions": {"numpy": np.__version__, "torch": torch.__version__},
            "seconds": round(self.seconds, 2),
            "initial_entropy": float(self.entropy[0].mean()),
            "rows": [row.as_dict() for row in self.rows],
            "sentences": self.sentences,
        }

    def save(self, directory: Path | str) -> list[Path]:
        """Write metrics.json, summary.json, comparison.png and comparison.svg; either all of them or, on an error, none."""
        from bandtheory.plots import render
        from trainer.figures import draw

        figure = draw(self)
        contents = {
            "metrics.json": _json(self.metrics_record(), indent=None),
            "summary.json": _json(self.summary_record(), indent=1),
            "comparison.png": render(figure, "png"),
            "comparison.svg": render(figure, "svg"),
        }
        return write_together(Path(directory), contents)


def compare(config: CompareConfig, progress: Progress | None = None) -> Comparison:
    """Run a comparison. Raises ConfigError for a configuration that cannot be run, or where a policy diverges."""
    config = config.resolved()
    with _threads(config.threads):
        return _compare(config, progress)


def _compare(config: CompareConfig, progress: Progress | None) -> Comparison:
    assert config.steps is not None and config.inner_steps is not None
    started = time.perf_counter()
    randomness = PairedRandomness(range(config.seed, config.seed + config.seeds))
    policy, task = bandit(config, randomness)
    measured: list[PolicyMetrics] = [measure(policy.logits, task)]
    clipped: list[loop.ClipFractions] = []
    training = loop.train(
        policy,
        task,
        config.rules,
        randomness,
        steps=config.steps,
        inner_steps=config.inner_steps,
        samples=config.samples,
    )
    for step, fractions in enumerate(training, start=1):
        _check_finite(policy.logits, config, step)
        measured.append(measure(policy.logits, task))
        clipped.append(fractions)
        if progress is not None:
            progress(step, config.steps)
    curves = {name: _stacked(measured, name) for name in POLICY_CURVES}
    return Comparison(
        config=config,
        **curves,
        clipped_up=_stacked(clipped, "up"),
        clipped_down=_stacked(clipped, "down"),
        seconds=time.perf_counter() - started,
    )


@contextmanager
def _threads(number: int) -> Iterator[None]:
    """Let torch use this many threads, and afterwards as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def config_record(config: CompareConfig) -> dict[str, Any]:
    """A configuration as JSON, rules also in their canonical form; without what does not change a result."""
    record = asdict(config)
    del record["out"], record["threads"]
    return record | {"canonical_rules": [str(clip_rules.parse(rule)) for rule in config.rules]}


def _check_finite(logits: torch.Tensor, config: CompareConfig, step: int) -> None:
    """Stop at the first step that leaves a policy without meaning, and say which one it was."""
    finite = logits.isfinite().all(-1).all(-1).all(-1)
    if not finite.all():
        rule, rate = (~finite).nonzero()[0].tolist()
        name, value = config.rules[rule], config.learning_rates[rate]
        raise ConfigError(
            f"learning_rates[{rate}]: {value:g} leaves the logits of {name} without a finite value in step {step}"
        )


def _stacked(records: list[Any], name: str) -> Array:
    """``(T, R, L, S)`` from one field of T records."""
    return torch.stack([getattr(record, name) for record in records]).double().numpy()


def _short(values: Array | float) -> Any:
    """Seven significant digits: what float32 training can mean, and a third of the file."""
    if np.ndim(values):
        return [float(f"{value:.7g}") for value in np.asarray(values)]
    return float(f"{float(values):.7g}")


def _json(record: dict[str, Any], indent: int | None) -> bytes:
    return (json.dumps(record, indent=indent, allow_nan=False) + "\n").encode()
