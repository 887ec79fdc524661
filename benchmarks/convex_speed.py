"""``python -m benchmarks.convex_speed``: how many n-token conic programs are solved and verified in a second, on one core.

Writes benchmarks/results/convex_speed.json. A program is compiled once per divergence and n, which is timed apart, in a
first round over all programs; each solve has another policy, action, radius and side.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from benchmarks.environment import describe, json_bytes, one_thread_each, write_together

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Settings:
    """Time `bandtheory.solve_convex`, verification included, in processor time of one core."""

    tokens: tuple[int, ...] = (4, 50, 200)
    """Numbers of tokens n."""
    divergences: tuple[str, ...] = ()
    """Names or expressions in u; none for the whole catalogue."""
    solves: int = 100
    """Programs per divergence and n."""
    repeats: int = 3
    """The best of so many solves of a program counts."""
    seed: int = 0
    """Of the policies, actions, radii and sides."""
    out: Path = Path(__file__).parent / "results" / "convex_speed.json"
    """File to write."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write and print."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    settings = tyro.cli(Settings, prog="python -m benchmarks.convex_speed", args=given)
    accepted = {
        "solves": (settings.solves, 1),
        "repeats": (settings.repeats, 1),
        **{f"tokens[{i}]": (n, 2) for i, n in enumerate(settings.tokens)},
    }
    for name, (value, least) in accepted.items():
        if value < least:
            print(f"error: {name} is {value}; accepted: an integer of at least {least}", file=sys.stderr)
            return 2
    one_thread_each()  # before numpy is loaded
    record = measure(settings)
    record |= {"run": describe("benchmarks.convex_speed", given, ("bandtheory", "cvxpy", "clarabel", "python-flint", "numpy"))}
    write_together({settings.out: json_bytes(record)})
    for row in record["rows"]:
        speed = f"{row['per_second']:.0f} a second (median {row['median_ms']:.2f} ms, compiled in {row['compile_ms']:.0f} ms)"
        quality = f"{row['optimal']} of {row['solves']} optimal, largest gap {row['largest_gap']:.0e}"
        print(f"{row['divergence']}, n = {row['tokens']}: {speed}, {quality}")
    print(f"wrote {settings.out.name}")
    return 0


def measure(settings: Settings) -> dict[str, Any]:
    """Rows of the table, one for each divergence and n."""
    from bandtheory.catalogue import examples

    rows = [_row(settings, n, name) for n in settings.tokens for name in settings.divergences or examples()]
    return {
        "what": "solve_convex with its verified enclosure, processor time of one core; per_second is solves over total time",
        "inputs": {
            "policies": "softmax of n independent normal logits with standard deviation 2",
            "actions": "uniform over the tokens",
            "radii": "log-uniform in [0.01, 0.2]",
            "sides": "upper and lower in turn",
            "repeats": settings.repeats,
            "seed": settings.seed,
        },
        "rows": rows,
    }


def programs(seed: int, n: int, count: int) -> list[tuple[NDArray[np.float64], int, float, str]]:
    """Policies with an action, a radius and a side."""
    import numpy as np

    rng = np.random.default_rng([seed, n])
    drawn = []
    for i in range(count):
        weights = np.exp(2 * rng.standard_normal(n))
        action, delta = int(rng.integers(n)), float(10 ** rng.uniform(-2, -0.7))
        drawn.append((weights / weights.sum(), action, delta, ("upper", "lower")[i % 2]))
    return drawn


def _row(settings: Settings, n: int, name: str) -> dict[str, Any]:
    from bandtheory import solve_convex

    drawn = programs(settings.seed, n, settings.solves)
    policy, action, delta, side = drawn[0]
    before = time.process_time()
    solve_convex(policy, action, name, delta, side)
    first = time.process_time() - before
    for policy, action, delta, side in drawn:  # hard ones compile a second program, with a box
        solve_convex(policy, action, name, delta, side)
    times, solutions = [], []
    for policy, action, delta, side in drawn:
        best = math.inf
        for _ in range(settings.repeats):
            before = time.process_time()
            solution = solve_convex(policy, action, name, delta, side)
            best = min(best, time.process_time() - before)
        times.append(best)
        solutions.append(solution)
    return {
        "divergence": name,
        "tokens": n,
        "solves": len(times),
        "per_second": len(times) / sum(times),
        "median_ms": 1e3 * statistics.median(times),
        "compile_ms": 1e3 * (first - times[0]),
        "optimal": sum(solution.status == "optimal" for solution in solutions),
        "largest_gap": max(solution.gap for solution in solutions),
        "solved_at_first_attempt": sum(len(solution.attempts) == 1 for solution in solutions),
    }


if __name__ == "__main__":
    sys.exit(main())
