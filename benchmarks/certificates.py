"""``python -m benchmarks.certificates``: what certificates in ball arithmetic cost, on one core.

Writes benchmarks/results/certificates.json. Right claims and wrong ones are timed apart: a right one needs few evaluations.
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
    """Time `bandtheory.evidence.certificate.certify` on one core for every divergence of the catalogue, both sides."""

    tokens: int = 4096
    """Log-probabilities in the array; each bound has one certificate."""
    delta: float = 0.05
    """Radius of the bands, nats."""
    seed: int = 0
    """Of the log-probabilities."""
    out: Path = Path(__file__).parent / "results" / "certificates.json"
    """File to write."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write and print; 1 if a claim that should hold does not, or one that should not does."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    settings = tyro.cli(Settings, prog="python -m benchmarks.certificates", args=given)
    if settings.tokens < 1:
        print(f"error: tokens is {settings.tokens}; accepted: an integer of at least 1", file=sys.stderr)
        return 2
    one_thread_each()  # before numpy is loaded
    record = measure(settings)
    record |= {"run": describe("benchmarks.certificates", given, ("bandtheory", "numpy", "sympy", "python-flint"))}
    write_together({settings.out: json_bytes(record)})
    for row in record["rows"]:
        print(
            f"{row['divergence']} {row['side']}: {row['right_processor_seconds']:.2f} s for {settings.tokens:,} right claims "
            f"({row['right_hold']:,} hold), {row['wrong_processor_seconds']:.2f} s for as many wrong ones "
            f"({row['wrong_hold']:,} hold), first call {1e3 * row['first_processor_seconds']:.0f} ms"
        )
    print(f"wrote {settings.out.name}")
    sound = all(row["right_hold"] == settings.tokens and row["wrong_hold"] == 0 for row in record["rows"])
    return 0 if sound else 1


def measure(settings: Settings) -> dict[str, Any]:
    """Times and counts per divergence and side."""
    import numpy as np

    from bandtheory.bounds import log_bounds
    from bandtheory.catalogue import examples
    from bandtheory.evidence.certificate import certify

    logp = -(10.0 ** np.random.default_rng(settings.seed).uniform(-8, 2, settings.tokens))
    rows = []
    for name in examples():
        bounds = log_bounds(logp=logp, divergence=name, delta=settings.delta)
        for side, claims in zip(("lower", "upper"), bounds, strict=True):
            # −inf stays −inf when it is multiplied, and 1 is not the bound of any band with a positive radius
            wrong = np.where(np.isinf(claims), -1.0, claims * (1 + 1e-9))
            judge = partial(certify, divergence=name, delta=settings.delta, side=side)
            first = timed(partial(judge, -1.0, 1.0))[1]
            right_result, right = timed(partial(judge, logp, log_ratio=claims))
            wrong_result, wrong_time = timed(partial(judge, logp, log_ratio=wrong))
            rows.append(
                {
                    "divergence": name,
                    "side": side,
                    "first_processor_seconds": first,
                    "right_processor_seconds": right,
                    "right_hold": int(right_result.holds.sum()),
                    "wrong_processor_seconds": wrong_time,
                    "wrong_hold": int(wrong_result.holds.sum()),
                }
            )
    return {
        "what": "processor time of certify on one core: claims from log_bounds, and those off by 1e-9 relative (-1 for -inf)",
        "inputs": {
            "logp": "-10**U, U uniform in [-8, 2]",
            "tokens": settings.tokens,
            "delta": settings.delta,
            "seed": settings.seed,
        },
        "rows": rows,
    }


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    """What a function returns, and the processor seconds it took."""
    started = time.process_time()
    result = function()
    return result, time.process_time() - started


if __name__ == "__main__":
    sys.exit(main())
