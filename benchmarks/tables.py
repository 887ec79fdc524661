"""``python -m benchmarks.tables``: knots and seconds of certified lookup tables, and what looking up costs.

Writes benchmarks/results/tables.json: every divergence of the catalogue at five radii, built and proved one after the other on
one core; the same set through `bandtheory table` on all cores; tables of a decade of radii; and the bounds of 2²⁰ tokens from a
table beside the textbook Pearson form, in one run, with one thread and with all. Exit status: 0 all targets met, 1 not.
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

    names: tuple[str, ...] = ("catalogue",)
    """Divergences; the word catalogue stands for all examples of it."""
    deltas: tuple[float, ...] = (0.001, 0.01, 0.05, 0.2, 1.0)
    """Radii, nats."""
    boxed: tuple[str, ...] = ("kl", "tv", "pearson_chi2", "reverse_kl")
    """Divergences of which a table of radii is built, at 1e-4."""
    box: tuple[float, float] = (0.01, 0.1)
    """Its radii, nats."""
    looked_up: tuple[str, ...] = ("kl", "tv", "pearson_chi2", "jensen_shannon")
    """Divergences whose lookup is timed."""
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

    names = [name for given in settings.names for name in (examples() if given == "catalogue" else (given,))]
    rows = [_built(name, delta) for name in names for delta in settings.deltas]
    seconds = _through_the_command(settings)
    radii = [_built_for_radii(name, settings.box) for name in settings.boxed]
    lookups = _looked_up(settings)
    fine = max(rows, key=lambda row: row["knots"])
    slow = max((row for row in rows if row["divergence"] == "kl"), key=lambda row: row["seconds"], default=None)
    at_most = functools.partial(Target, relation="at most")
    targets = [
        at_most(f"most knots at 1e-6, {fine['divergence']} at {fine['delta']:g}", measured=fine["knots"], target=4096),
        at_most(f"seconds of {len(rows)} tables with {settings.workers} processes", measured=seconds, target=600),
    ]
    if slow is not None:
        name = f"seconds of a kl table at 1e-6 on one core, at {slow['delta']:g}"
        targets.append(at_most(name, measured=slow["seconds"], target=15))
    for threads in sorted({row["threads"] for row in lookups}):
        slowest = max((row for row in lookups if row["threads"] == threads), key=lambda row: row["times_pearson"])
        name = f"times the textbook Pearson form, {slowest['table']}, threads {threads}"
        targets.append(at_most(name, measured=slowest["times_pearson"], target=1))
    return {
        "what": "certified lookup tables at 1e-6 (knots at 1e-4 beside it), proofs included in the seconds; wall seconds",
        "inputs": {name: getattr(settings, name) for name in ("names", "deltas", "box", "tokens", "repeats", "seed")},
        "targets": [target.row() for target in targets],
        "catalogue_seconds": round(seconds, 2),
        "workers": settings.workers,
        "lookups": lookups,
        "radii": radii,
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


def _built_for_radii(name: str, box: tuple[float, float]) -> dict[str, Any]:
    from bandtheory.radius_table import RadiusTable

    started = time.perf_counter()
    table = RadiusTable.build(name, *box)
    seconds = time.perf_counter() - started
    print(f"{name}, δ from {box[0]:g} to {box[1]:g}: {table.size} knots, {seconds:.1f} s", flush=True)
    return {
        "divergence": name,
        "cells": [len(table.lower.counts), len(table.upper.counts)],
        "knots": table.size,
        "certified_error": table.certified_error,
        "seconds": round(seconds, 2),
    }


def _through_the_command(settings: Settings) -> float:
    """Wall seconds of `bandtheory table catalogue` in an empty folder."""
    from bandtheory.cli import main as bandtheory

    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        status = bandtheory(
            [
                "table",
                *settings.names,
                "--delta",
                *map(str, settings.deltas),
                "--out",
                folder,
                "--workers",
                str(settings.workers),
            ]
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
    rows, all_threads = [], torch.get_num_threads()
    with tempfile.TemporaryDirectory() as folder:
        for name in settings.looked_up:
            path = Path(folder) / f"{name}.safetensors"
            BandTable.build(name, DELTA).save(path)
            rule = f"table:{path}"
            log_bounds(logp[:1], rule)
            calls: Calls = {
                "table": functools.partial(log_bounds, logp, rule),
                "pearson": functools.partial(textbook_pearson, logp, DELTA),
            }
            for threads in sorted({1, all_threads}):
                torch.set_num_threads(threads)
                seconds = {call: min(times) for call, times in alternating(calls, settings.repeats, logp.device).items()}
                rows.append(
                    {
                        "table": name,
                        "threads": threads,
                        "seconds": seconds["table"],
                        "pearson_seconds": seconds["pearson"],
                        "times_pearson": seconds["table"] / seconds["pearson"],
                    }
                )
    torch.set_num_threads(all_threads)
    return rows


if __name__ == "__main__":
    sys.exit(main())
