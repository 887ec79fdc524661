"""``python -m benchmarks.exhaustive``: the bounds of `bandtheory.torch` on every float, beside float64 and ball arithmetic.

Log-ratios and ratios are measured. Writes benchmarks/results/exhaustive_float32.json (every float32 in (−104, 0], and −∞),
exhaustive_float32_sweep.json with `--stride 997` (all divergences and radii, one float32 in 997) or exhaustive_half.json with
`--type half` (every float16 and bfloat16 of [−∞, 0]); another choice of inputs needs `--out`. A run that was broken off goes on
where it was: the same command finds what is finished in a file beside the result. Exit status: 0 all within what is allowed,
1 something is not or a process broke off, 2 wrong usage, 130 Ctrl-C.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import tyro
from rich.console import Console

from bandtheory.processor import usable_cores
from benchmarks import parallel
from benchmarks.environment import describe, json_bytes, one_thread_each, write_together
from benchmarks.exhaustive_report import ALLOWED_DENORMAL, report, side_record
from benchmarks.exhaustive_state import State, TotalBar

RESULTS = Path(__file__).parent / "results"
WALKED = ("kl", "tv", "pearson_chi2")  # by default, on every float32
WALKED_DELTAS = (0.05,)
SWEPT_DELTAS = (0.001, 0.01, 0.05, 0.2, 1.0)
SWEPT_STRIDE = 997
HALF_TYPES = ("float16", "bfloat16")
ALLOWED = {"cpu": 2.0}  # units in the last place of a float32
ALLOWED_ON_A_DEVICE = 4.0
PACKAGES = ("bandtheory", "numpy", "scipy", "torch", "python-flint")

Record = dict[str, Any]


class ExhaustiveError(ValueError):
    """Arguments that cannot be used; the message names the argument, the value and what is accepted."""


@dataclass(frozen=True)
class Settings:
    """Compare the bounds of `bandtheory.torch` with certified ones, on every float of a type."""

    type: Literal["float32", "half"] = "float32"
    """Of the log-probabilities; half is float16 and bfloat16."""
    divergences: tuple[str, ...] = ()
    """Default: kl, tv and pearson_chi2 where every float32 is taken, else all that are shipped."""
    deltas: tuple[float, ...] = ()
    """Radii, nats. Default: 0.05 where every float32 is taken, else 0.001, 0.01, 0.05, 0.2 and 1."""
    stride: int = 1
    """Take every STRIDE-th float."""
    lowest: float = -104.0
    """Take floats above this one; of float16 and bfloat16 all are taken."""
    device: str = "cpu"
    """Where the bounds are computed, as torch names it; 2 units in the last place are allowed on the cpu, 4 elsewhere."""
    sample: int = 2**17
    """One certificate for so many floats, and at least 16 for each piece."""
    seed: int = 0
    """Of the sample."""
    piece: int = 2**24
    """Floats that one process takes at a time; a piece is lost when the run is broken off."""
    workers: int = usable_cores()
    """Processes."""
    out: Path | None = None
    """File to write. Default: in benchmarks/results, named after what is measured; needed where that is only a part of it."""

    @property
    def full(self) -> bool:
        """Whether every float32 is taken."""
        return self.type == "float32" and self.stride == 1

    @property
    def target(self) -> Path:
        """The file to write."""
        kind = "half" if self.type == "half" else "float32" if self.full else "float32_sweep"
        device = "" if self.device == "cpu" else f"_{self.device.partition(':')[0]}"
        return self.out or RESULTS / f"exhaustive_{kind}{device}.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """Walk, write and print."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    settings = tyro.cli(Settings, prog="python -m benchmarks.exhaustive", args=given)
    return parallel.exit_status(lambda: walk(settings, given))


def walk(settings: Settings, arguments: Sequence[str]) -> int:
    """Measure all pieces that are not finished yet, and write the result."""
    one_thread_each()  # before numpy and torch are loaded, here and in the processes started from here
    _check(settings)
    started = time.perf_counter()
    cases = plan(settings)
    pieces = {name: piece for parts in cases.values() for name, piece in parts.items()}
    state = State.beside(settings.target, settings.device)
    known = state.read()
    finished = {name: known[key] for name, piece in pieces.items() if (key := state.key(piece)) in known}
    jobs = {name: partial(state.measured, piece) for name, piece in pieces.items() if name not in finished}
    total = sum(piece.count for piece in pieces.values())
    print(
        f"{total:,} floats in {len(pieces)} pieces, {len(finished)} of them finished; {settings.workers} "
        f"{'process' if settings.workers == 1 else 'processes'}",
        flush=True,
    )
    before = signal.signal(signal.SIGINT, _stop)
    try:
        results = finished | _run(jobs, pieces, settings.workers)
    except KeyboardInterrupt:
        kept = len(state.read().keys() & {state.key(piece) for piece in pieces.values()})
        print(f"interrupted; {kept} of {len(pieces)} pieces are finished, the same command goes on there", file=sys.stderr)
        return 130
    finally:
        signal.signal(signal.SIGINT, before)
    record = summary(settings, cases, results)
    run = describe("benchmarks.exhaustive", arguments, PACKAGES) | {"seconds": round(time.perf_counter() - started, 1)}
    write_together({settings.target: json_bytes(record | {"run": run})})
    state.remove()
    for line in report(record):
        print(line)
    print(f"wrote {settings.target.name}", flush=True)
    return 0 if record["passed"] else 1


def _run(jobs: dict[str, Any], pieces: dict[str, Any], workers: int) -> dict[str, Any]:
    if not jobs:
        return {}
    console = Console(emoji=False, highlight=False)
    with (
        TotalBar.on(console, {name: piece.count for name, piece in pieces.items()}, set(jobs))
        if console.is_terminal
        else parallel.display(len(jobs), console) as display
    ):
        return parallel.run(jobs, min(workers, len(jobs)), display)


def _stop(*_: object) -> None:
    """End the processes started from here, which else would finish their pieces first, and then the run."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one would break off the ending
    for process in multiprocessing.active_children():
        process.terminate()
    raise KeyboardInterrupt


def plan(settings: Settings) -> dict[tuple[str, str, float], dict[str, Any]]:
    """Pieces by name, for every case: a type, a divergence and a radius."""
    from bandtheory.catalogue import examples
    from benchmarks.exhaustive_pieces import Piece, patterns_above

    types = HALF_TYPES if settings.type == "half" else (settings.type,)
    divergences = settings.divergences or (WALKED if settings.full else examples())
    cases: dict[tuple[str, str, float], dict[str, Any]] = {}
    for kind in types:
        count = -(-patterns_above(settings.lowest if kind == "float32" else -math.inf, kind) // settings.stride)
        parts = -(-count // settings.piece)
        for divergence in divergences:
            for delta in settings.deltas or (WALKED_DELTAS if settings.full else SWEPT_DELTAS):
                case = f"{kind}, {divergence}, δ = {delta:g}"
                cases[kind, divergence, delta] = {
                    case if parts == 1 else f"{case}, part {k + 1} of {parts}": Piece(
                        format=kind,
                        divergence=divergence,
                        delta=delta,
                        device=settings.device,
                        first=k * settings.piece * settings.stride,
                        stride=settings.stride,
                        count=min(settings.piece, count - k * settings.piece),
                        limits=k == 0,
                        sample=settings.sample,
                        seed=settings.seed,
                    )
                    for k in range(parts)
                }
    return cases


def summary(settings: Settings, cases: dict[tuple[str, str, float], dict[str, Any]], results: dict[str, Any]) -> Record:
    """What the result file holds, except for how it was run."""
    from benchmarks.exhaustive_errors import REFERENCE_ERROR
    from benchmarks.exhaustive_pieces import merge

    allowed = ALLOWED.get(settings.device, ALLOWED_ON_A_DEVICE) if settings.type == "float32" else None
    rows = []
    for (kind, divergence, delta), parts in cases.items():
        merged = merge(results[name] for name in parts)
        sides = {side: side_record(merged[side], settings.type, allowed, REFERENCE_ERROR) for side in sorted(merged)}
        rows.append({"type": kind, "divergence": divergence, "delta": delta, "rule": next(iter(parts.values())).rule, **sides})
    lowest = settings.lowest if settings.type == "float32" else -math.inf
    return {
        "what": "log-ratio and ratio bounds of bandtheory.torch beside those of float64, in units in the last place at those; "
        "bound is the log-ratio everywhere",
        "inputs": {
            "logp": f"{'every number' if settings.stride == 1 else f'one number in {settings.stride}'} of the type in "
            f"({lowest:g}, 0], from −0 downwards; +0 and −inf",
            "stride": settings.stride,
            "lowest": lowest,
            "sample": settings.sample,
            "seed": settings.seed,
            "piece": settings.piece,
        },
        "device": _device_name(settings.device),
        "allowed_ulp": allowed,
        "allowed_denormal_ratio": ALLOWED_DENORMAL if allowed else None,
        "reference_error": REFERENCE_ERROR,
        "passed": all(row[side]["passed"] for row in rows for side in ("lower", "upper")),
        "rows": rows,
    }


def _device_name(device: str) -> str:
    import torch

    return torch.cuda.get_device_name(device) if device.startswith("cuda") else device


def _check(settings: Settings) -> None:
    """Refuse what cannot work before hours of work, not after."""
    from bandtheory.rules import Band

    for name, least in (("stride", 1), ("sample", 1), ("seed", 0), ("piece", 1), ("workers", 1)):
        if getattr(settings, name) < least:
            raise ExhaustiveError(f"{name} is {getattr(settings, name)}; accepted: an integer of at least {least}")
    if not settings.lowest < 0:
        raise ExhaustiveError(f"lowest is {settings.lowest}; accepted: a number below 0, or -inf")
    for delta in settings.deltas:
        if not 0 < delta < math.inf:
            raise ExhaustiveError(f"deltas: {delta} is not accepted; accepted: finite radii above 0 (nats)")
    for name in settings.divergences:
        Band(name)
    if settings.out is None and (changed := _changed(settings)):
        raise ExhaustiveError(
            f"{changed} is {getattr(settings, changed)}, which {settings.target.name} is not for; "
            "accepted: the default, or any with a file to write in out"
        )
    if settings.target.is_dir():
        raise ExhaustiveError(f"out is {str(settings.target)!r}, a directory; accepted: a file name")
    import torch

    try:
        torch.empty(0, device=settings.device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise ExhaustiveError(f"device is {settings.device!r}: {reason}; accepted: cpu, or a device torch finds here") from None


def _changed(settings: Settings) -> str | None:
    """The first setting, if any, that makes a run another one than the file of its default name is for."""
    defaults = {
        "stride": (1,) if settings.type == "half" else (1, SWEPT_STRIDE),
        "divergences": ((), *((WALKED,) if settings.full else ())),
        "deltas": ((), WALKED_DELTAS if settings.full else SWEPT_DELTAS),
        "lowest": (settings.lowest if settings.type == "half" else Settings.lowest,),
        "sample": (Settings.sample,),
    }
    return next((name for name, accepted in defaults.items() if getattr(settings, name) not in accepted), None)


if __name__ == "__main__":
    status = main()
    if status == 130:  # a pool whose processes were ended can wait for them without end when the interpreter shuts down
        watch = threading.Timer(3.0, os._exit, [status])
        watch.daemon = True
        watch.start()
    sys.exit(status)
