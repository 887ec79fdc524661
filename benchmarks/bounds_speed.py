"""``python -m benchmarks.bounds_speed``: what bounds cost, on one core, beside a plain clamp of the same array.

Writes benchmarks/results/bounds_speed.json. Times depend on the machine, so each is also given as a multiple of the time of
`np.clip` in the same run.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import tyro

from benchmarks.environment import describe, json_bytes, one_thread_each, write_together


@dataclass(frozen=True)
class Settings:
    """Time `bandtheory.log_bounds` on one core for every divergence of the catalogue."""

    tokens: int = 1_000_000
    """Log-probabilities in the array."""
    delta: float = 0.05
    """Radius of the bands, nats."""
    repeats: int = 5
    """The best of so many runs counts."""
    seed: int = 0
    """Of the log-probabilities."""
    out: Path = Path(__file__).parent / "results" / "bounds_speed.json"
    """File to write."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write and print."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    settings = tyro.cli(Settings, prog="python -m benchmarks.bounds_speed", args=given)
    for name in ("tokens", "repeats"):
        if getattr(settings, name) < 1:
            print(f"error: {name} is {getattr(settings, name)}; accepted: an integer of at least 1", file=sys.stderr)
            return 2
    one_thread_each()  # before numpy is loaded
    record = measure(settings) | {"run": describe("benchmarks.bounds_speed", given, ("bandtheory", "numpy", "scipy"))}
    write_together({settings.out: json_bytes(record)})
    print(f"np.clip: {1e3 * record['clip_seconds']:.2f} ms for {settings.tokens:,} tokens, best of {settings.repeats}")
    for row in record["rows"]:
        print(f"{row['divergence']}: {1e3 * row['seconds']:.1f} ms, {row['times_clip']:.0f} × np.clip, {row['evidence']}")
    print(f"wrote {settings.out.name}")
    return 0


def measure(settings: Settings) -> dict[str, Any]:
    """Best times of all divergences, and of `np.clip` on the same array."""
    import numpy as np

    from bandtheory.bounds import log_bounds
    from bandtheory.catalogue import examples

    logp = -(10.0 ** np.random.default_rng(settings.seed).uniform(-8, 2, settings.tokens))
    low, high = np.log(0.8), np.log(1.2)
    clip_seconds, clip_cpu = best(lambda: np.clip(logp, low, high), settings.repeats)
    rows = []
    for name in examples():
        evidence = log_bounds(logp=logp[:1], divergence=name, delta=settings.delta).evidence  # and the derivation is done
        call = partial(log_bounds, logp=logp, divergence=name, delta=settings.delta)
        seconds, cpu = best(call, settings.repeats)
        row = {"divergence": name, "seconds": seconds, "processor_seconds": cpu, "times_clip": seconds / clip_seconds}
        rows.append(row | {"evidence": evidence})
    return {
        "what": "wall and processor time of log_bounds on one core, both bounds, float64; np.clip on the same array",
        "inputs": {
            "logp": "-10**U, U uniform in [-8, 2]",
            "tokens": settings.tokens,
            "delta": settings.delta,
            "seed": settings.seed,
            "repeats": settings.repeats,
        },
        "clip_seconds": clip_seconds,
        "clip_processor_seconds": clip_cpu,
        "rows": rows,
    }


def best(function: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Wall and processor seconds, each of the fastest of so many calls: noise only ever adds."""

    def once() -> tuple[float, float]:
        wall, cpu = time.perf_counter(), time.process_time()
        function()
        return time.perf_counter() - wall, time.process_time() - cpu

    walls, cpus = zip(*(once() for _ in range(repeats)), strict=True)
    return min(walls), min(cpus)


if __name__ == "__main__":
    sys.exit(main())
