"""``python -m benchmarks.tables``: knots and seconds of certified lookup tables, and what looking up costs.

Writes benchmarks/results/tables.json: every divergence of the catalogue at five radii, built and proved one after the other on
one core; the same set through `bandtheory table` on all cores; and the bounds of 2²⁰ tokens from a table beside the textbook
Pearson form, in one run. Exit status: 0 all targets met, 1 not.
"""

from __future__ import annotations

import functools
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tyro

from bandtheory.processor import usable_cores
from benchmarks.environment import describe, json_bytes, write_together

PACKAGES = ("bandtheory", "numpy", "sympy", "python-flint", "torch", "safetensors")


@dataclass(frozen=True)
class Settings:
    """Build and prove lookup tables of the catalogue, and time looking up."""

    deltas: tuple[float, ...] = (0.001, 0.01, 0.05, 0.2, 1.0)
    """Radii, nats."""
    tokens: int = 2**20
    """Tokens that are looked up."""
    repeats: int = 15
    """Of looking up; the best counts."""
    workers: int = field(default_factory=usable_cores)
    """Processes of the run through the command line."""
    seed: int = 0
    """Of the tokens."""
    out: Path = Path(__file__).parent / "results" / "tables.json"
    """File to write."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write and print."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    settings = tyro.cli(Settings, prog="python -m benchmarks.tables", args=given)
    for name in ("tokens", "repeats", "workers"):
        if getattr(settings, name) < 1:
            print(f"error: {name} is {getattr(settings, name)}; accepted: an integer of at least 1", file=sys.stderr)
            return 2
    record = measure(settings) | {"run": describe("benchmarks.tables", given, PACKAGES)}
    write_together({settings.out: json_bytes(record)})
    for target in record["targets"]:
        print(
            f"{'met' if target['met'] else 'NOT MET'}: {target['name']}: {target['measured']:.3g}, at most {target['target']:g}"
        )
    print(f"wrote {settings.out.name}")
    return 0 if all(target["met"] for target in record["targets"]) else 1


def measure(settings: Settings) -> dict[str, Any]:
    """All of it."""
    from bandtheory.catalogue import examples
    from benchmarks.op_timing import Target

    rows = [_built(name, delta) for name in examples() for delta in settings.deltas]
    seconds = _through_the_command(settings)
    lookups = _looked_up(settings)
    fine = max(rows, key=lambda row: row["knots"])
    kl = [row for row in rows if row["divergence"] == "kl"]
    slowest = max(lookups, key=lambda row: row["times_pearson"])
    at_most = functools.partial(Target, relation="at most")
    targets = [
        at_most(f"most knots at 1e-6, {fine['divergence']} at {fine['delta']:g}", measured=fine["knots"], target=4096),
        at_most(
            "seconds of a kl table at 1e-6 on one core, the slowest", measured=max(row["seconds"] for row in kl), target=15
        ),
        at_most(f"seconds of {len(rows)} tables with {settings.workers} processes", measured=seconds, target=600),
        at_most(f"times the textbook Pearson form, {slowest['table']}", measured=slowest["times_pearson"], target=1),
    ]
    return {
        "what": "certified lookup tables at 1e-6 (knots at 1e-4 beside it), proofs included in the seconds; wall seconds",
        "inputs": {"deltas": settings.deltas, "tokens": settings.tokens, "repeats": settings.repeats, "seed": settings.seed},
        "targets": [target.row() for target in targets],
        "catalogue_seconds": round(seconds, 2),
        "workers": settings.workers,
        "lookups": lookups,
        "rows": rows,
    }


def _built(name: str, delta: float) -> dict[str, Any]:
    from bandtheory.tables import BandTable

    started = time.perf_counter()
    table = BandTable.build(name, delta)
    seconds = time.perf_counter() - started
    print(f"{name}, δ = {delta:g}: {len(table.knots)} knots, {seconds:.2f} s", flush=True)
    return {
        "divergence": name,
        "delta": delta,
        "knots": len(table.knots),
        "knots_at_1e-4": len(BandTable.build(name, delta, max_error=1e-4).knots),
        "gap_rows": int(table.gaps.sum()),
        "certified_error": table.certified_error,
        "seconds": round(seconds, 3),
    }


def _through_the_command(settings: Settings) -> float:
    """Wall seconds of `bandtheory table catalogue` in an empty folder."""
    from bandtheory.cli import main as bandtheory

    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        status = bandtheory(
            ["table", "catalogue", "--delta", *map(str, settings.deltas), "--out", folder, "--workers", str(settings.workers)]
        )
        if status:
            raise RuntimeError(f"bandtheory table ended with status {status}")
        return time.perf_counter() - started


def _looked_up(settings: Settings) -> list[dict[str, Any]]:
    """Bounds of float32 tokens on the CPU from a table, and by Pearson's textbook form, in turns."""
    import torch

    from bandtheory.tables import BandTable
    from bandtheory.torch import log_bounds
    from bandtheory.torch.selftest import alternating, textbook_pearson
    from benchmarks.op_timing import DELTA, Calls, bundled_tokens

    logp = bundled_tokens(settings.tokens, settings.seed)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in ("kl", "tv", "pearson_chi2", "jensen_shannon"):
            path = Path(folder) / f"{name}.safetensors"
            BandTable.build(name, DELTA).save(path)
            rule = f"table:{path}"
            log_bounds(logp[:1], rule)
            calls: Calls = {
                "table": functools.partial(log_bounds, logp, rule),
                "pearson": functools.partial(textbook_pearson, logp, DELTA),
            }
            seconds = {call: min(times) for call, times in alternating(calls, settings.repeats, logp.device).items()}
            rows.append(
                {
                    "table": name,
                    "threads": torch.get_num_threads(),
                    "seconds": seconds["table"],
                    "pearson_seconds": seconds["pearson"],
                    "times_pearson": seconds["table"] / seconds["pearson"],
                }
            )
    return rows


if __name__ == "__main__":
    sys.exit(main())
