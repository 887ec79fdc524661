"""``python -m benchmarks.gpu``: is the tensor operation right on a CUDA device, and how fast is it there?

Writes benchmarks/results/gpu.json. Without a CUDA device it exits with 2, unless `--dry-run` is given: then everything that
can run on the CPU runs there with tiny sizes, through the Triton interpreter where TRITON_INTERPRET=1 is set; such times mean
nothing.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from torch import Tensor

from bandtheory.closed_form_search import closed_form
from bandtheory.divergence import divergence
from bandtheory.rules import Band, parse
from bandtheory.torch import log_bounds
from bandtheory.torch.selftest import Interval, alternating, deviation, find_device, sample, textbook_pearson
from benchmarks.environment import describe, json_bytes, write_together
from benchmarks.op_timing import (
    CLIP,
    DELTA,
    HALVES,
    KL,
    RULES,
    Calls,
    Target,
    bundled_tokens,
    log_bounds_call,
    memory_rows,
    path,
    surrogate_rows,
    worst_of,
)

MOST_ULP = {"float32": 4.0, "bfloat16": 1.0, "float16": 1.0}
CLOSED_FORM_SHARE, KL_SHARE = 0.8, 0.6  # of the bandwidth of a copy
SURROGATE_TARGET = 1.2
MEMORY_TARGET = 1.0
SMALLEST, LARGEST, DRY_LARGEST = 10, 26, 12  # of the scaling, powers of two
DRY_TOKENS, DRY_RULES = 2**10, ("band:kl:0.05", "band:tv:0.05", "clip:0.2,0.2")


@dataclass(frozen=True)
class Settings:
    """Accuracy, speed, memory, CUDA graphs and torch.compile of bandtheory.torch on a CUDA device."""

    device: str = "cuda"
    """Such as cuda or cuda:1."""
    tokens: int = 2**24
    """Log-probabilities whose bounds are timed, resampled from the bundled tokens."""
    random_tokens: int = 2**18
    """Log-probabilities for the accuracy; each costs a float64 bound on the host."""
    repeats: int = 21
    """The median of so many counts, each side of a ratio in turn."""
    rules: tuple[str, ...] = ()
    """Rules besides kl and the fixed clip; none for all."""
    seed: int = 0
    """Of the tokens."""
    dry_run: bool = False
    """Run on the CPU with tiny sizes, to test this script."""
    out: Path | None = None
    """File to write; benchmarks/results/gpu.json, or nothing with --dry-run."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write and print; 0 once everything ran, 1 if the accuracy, a graph or a compilation failed, 2 for no device."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    settings = tyro.cli(Settings, prog="python -m benchmarks.gpu", args=given)
    for name, least in (("tokens", 1), ("random_tokens", 1), ("repeats", 1), ("seed", 0)):
        if getattr(settings, name) < least:
            print(f"error: {name} is {getattr(settings, name)}; accepted: an integer of at least {least}", file=sys.stderr)
            return 2
    try:
        if not settings.dry_run and not (torch.cuda.is_available() and settings.device.startswith("cuda")):
            raise ValueError(
                f"device is {settings.device!r}, but there is no such CUDA device here; accepted elsewhere: --dry-run"
            )
        device = find_device("cpu" if settings.dry_run else settings.device)
        record = measure(_tiny(settings) if settings.dry_run else settings, device)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    record |= {"run": describe("benchmarks.gpu", given, ("bandtheory", "numpy", "torch"))}
    _print(record)
    out = settings.out or (None if settings.dry_run else Path(__file__).parent / "results" / "gpu.json")
    if out is not None:
        write_together({out: json_bytes(record)})
        print(f"wrote {out.name}")
    return 0 if record["works"] else 1


def _tiny(settings: Settings) -> Settings:
    rules = settings.rules or DRY_RULES
    return replace(settings, tokens=DRY_TOKENS, random_tokens=DRY_TOKENS, repeats=2, rules=rules)


def measure(settings: Settings, device: torch.device) -> dict[str, Any]:
    """All measurements and the targets; `works` says if every result was right, whatever the times."""
    rules = list(dict.fromkeys([KL, CLIP, *(str(parse(rule)) for rule in settings.rules or RULES)]))
    logp = bundled_tokens(settings.tokens, settings.seed, device)
    accuracy = [row for rule in rules for row in _accuracy(rule, settings, device)]
    bounds = [_bounds_row(logp, rule, settings.repeats) for rule in rules]
    surrogate = surrogate_rows(logp, rules, settings.seed, partial(_medians, repeats=settings.repeats, device=device))
    memory = memory_rows(logp, rules)
    features = {"cuda_graph": _captures(logp, device), "compile": _compiles(logp[: 2**16], device)}
    return {
        "what": "CUDA events, median of the repeats, after a warm-up; on the CPU (dry run) a clock, and the times mean nothing",
        "inputs": {
            "device": str(device),
            "tokens": settings.tokens,
            "random_tokens": settings.random_tokens,
            "repeats": settings.repeats,
            "seed": settings.seed,
            "dry_run": settings.dry_run,
        },
        "device": _device(device) | {"path": path(KL, device)},
        "works": all(row["ulp"] <= row["accepted"] for row in accuracy) and "failed" not in " ".join(features.values()),
        "targets": [target.row() for target in targets(accuracy, bounds, surrogate, memory)],
        "accuracy": accuracy,
        "features": features,
        "bounds": bounds,
        "surrogate": surrogate,
        "memory": memory,
        "scaling": _scaling(settings, device),
    }


def _device(device: torch.device) -> dict[str, Any]:
    if device.type != "cuda":
        return {"name": device.type}
    about = torch.cuda.get_device_properties(device)
    return {
        "name": about.name,
        "capability": f"{about.major}.{about.minor}",
        "memory_gib": round(about.total_memory / 2**30, 1),
        "cuda": torch.version.cuda,
    }


# --- accuracy ----------------------------------------------------------------------------------------------------------------


def _accuracy(rule: str, settings: Settings, device: torch.device) -> list[dict[str, Any]]:
    """Largest error in units in the last place against float64 bounds on the host, with the input where it is."""
    rows = []
    for dtype, what, tokens in _inputs(settings):
        pairs = zip(log_bounds(tokens.to(device), rule), _reference(rule, tokens), strict=True)
        worst = np.maximum(*(deviation(bound.cpu(), Interval(exact, exact)) for bound, exact in pairs))
        name = str(dtype).removeprefix("torch.")
        row = {"rule": rule, "dtype": name, "inputs": what, "tokens": len(tokens), "ulp": float(worst.max())}
        rows.append(row | {"worst_at": float(tokens[int(worst.argmax())]), "accepted": MOST_ULP[name]})
    return rows


def _inputs(settings: Settings) -> list[tuple[torch.dtype, str, Tensor]]:
    """Random float32 over ten decades, the hostile ones of the self-test, and all 65,536 values of each half type."""
    random = -(10.0 ** np.random.default_rng(settings.seed).uniform(-8, 2.02, settings.random_tokens))
    all_patterns = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    if settings.dry_run:
        all_patterns = all_patterns[::61].contiguous()
    return [
        (torch.float32, "random", torch.from_numpy(random.astype(np.float32))),
        (torch.float32, "random and hostile", sample(torch.float32, settings.seed)),
        *((dtype, "all values", all_patterns.view(dtype)) for dtype in HALVES),
    ]


def _reference(rule: str, tokens: Tensor) -> list[Any]:
    """The numpy library in float64; NaN where the token is."""
    unknown = tokens.isnan().numpy()
    bounds = parse(rule).log_bounds(np.where(unknown, -1.0, tokens.double().clamp(max=0.0).numpy()))
    return [np.where(unknown, math.nan, bound) for bound in (bounds.lower, bounds.upper)]


# --- what a trainer does with it ---------------------------------------------------------------------------------------------


def _captures(logp: Tensor, device: torch.device) -> str:
    """Record the operation in a CUDA graph, replay it on other tokens, and compare."""
    if device.type != "cuda":
        return "not run: no CUDA device"
    try:
        with torch.cuda.device(device):
            held = logp.clone()
            with torch.cuda.stream(torch.cuda.Stream()):
                log_bounds(held, KL)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                bounds = log_bounds(held, KL)
            held.copy_(logp.flip(0) * 0.5)
            graph.replay()
            return _same(bounds, log_bounds(held, KL))
    except Exception as error:  # what a failed capture raises depends on the release
        return f"failed: {type(error).__name__}: {error}"


def _compiles(logp: Tensor, device: torch.device) -> str:
    """`torch.compile(fullgraph=True)` of bounds within other operations, against the same in eager mode."""

    def width(x: Tensor) -> tuple[Tensor, Tensor]:
        lower, upper = log_bounds(x * 0.5, KL)
        return lower * 2, upper * 2

    try:
        # inductor needs a C++ compiler on the CPU; the graph and the fake tensors are the same with this backend
        compiled = torch.compile(width, fullgraph=True, backend="inductor" if device.type == "cuda" else "aot_eager")
        return _same(compiled(logp), width(logp))
    except Exception as error:
        return f"failed: {type(error).__name__}: {error}"


def _same(ours: Sequence[Tensor], wanted: Sequence[Tensor]) -> str:
    same = all(torch.equal(a, b) for a, b in zip(ours, wanted, strict=True))
    return "works" if same else "failed: other values than in eager mode"


# --- speed and memory --------------------------------------------------------------------------------------------------------


def _medians(calls: Calls, repeats: int, device: torch.device) -> dict[str, float]:
    return {name: statistics.median(seconds) for name, seconds in alternating(calls, repeats, device, warm_up=3).items()}


def _bounds_row(logp: Tensor, rule: str, repeats: int) -> dict[str, Any]:
    """Bounds beside a copy that moves as many bytes: 4 read and 8 written a token are a copy of 6 bytes a token."""
    source = torch.zeros(6 * len(logp), dtype=torch.uint8, device=logp.device)
    target = torch.empty_like(source)
    calls: Calls = {
        "rule": log_bounds_call(logp, rule),
        "copy": lambda: target.copy_(source),
        "pearson": lambda: textbook_pearson(logp, DELTA),
    }
    median = _medians(calls, repeats, logp.device)
    return {
        "rule": rule,
        "path": path(rule, logp.device),
        "seconds": median["rule"],
        "copy_seconds": median["copy"],
        "copy_bytes_a_second": 2 * source.numel() / median["copy"],
        "share_of_copy_bandwidth": median["copy"] / median["rule"],
        "times_pearson": median["rule"] / median["pearson"],
    }


def _scaling(settings: Settings, device: torch.device) -> list[dict[str, Any]]:
    rows = []
    for power in range(SMALLEST, (DRY_LARGEST if settings.dry_run else LARGEST) + 1, 2):
        logp = bundled_tokens(2**power, settings.seed, device)
        median = _medians({rule: log_bounds_call(logp, rule) for rule in (KL, CLIP)}, settings.repeats, device)
        rows += [{"rule": rule, "tokens": 2**power, "seconds": seconds} for rule, seconds in median.items()]
    return rows


# --- targets -----------------------------------------------------------------------------------------------------------------


def targets(
    accuracy: list[dict[str, Any]], bounds: list[dict[str, Any]], surrogate: list[dict[str, Any]], memory: list[dict[str, Any]]
) -> list[Target]:
    """What the operation should reach on a device."""
    by_dtype = {dtype: [row for row in accuracy if row["dtype"] == dtype] for dtype in MOST_ULP}
    closed = [row for row in bounds if _is_closed_form(row["rule"])]
    share, name = "share_of_copy_bandwidth", "share of a copy's bandwidth"
    loss, memory_name = "loss forward and backward: times the fixed clip", "memory beyond the outputs: times the input"
    found = [worst_of(rows, "ulp", f"{dtype}: error in ulp", "at most", MOST_ULP[dtype]) for dtype, rows in by_dtype.items()]
    found += [worst_of(closed, share, f"closed forms: {name}", "at least", CLOSED_FORM_SHARE)] if closed else []
    kl = next(row for row in bounds if row["rule"] == KL)
    return [
        *found,
        Target(f"{KL}: {name}", "at least", KL_SHARE, kl[share]),
        worst_of(surrogate, "times_clip", loss, "at most", SURROGATE_TARGET),
        worst_of(memory, "times_input", memory_name, "at most", MEMORY_TARGET),
    ]


def _is_closed_form(rule: str) -> bool:
    """Whether the rule is a band whose bounds have an elementary closed form."""
    parsed = parse(rule)
    return isinstance(parsed, Band) and closed_form(divergence(parsed.divergence)) is not None


def _print(record: dict[str, Any]) -> None:
    print(f"{record['device']['name']}, {record['device']['path']}{', DRY RUN' if record['inputs']['dry_run'] else ''}")
    for row in record["bounds"]:
        share = 100 * row["share_of_copy_bandwidth"]
        print(f"{row['rule']}: {1e3 * row['seconds']:.3f} ms, {share:.0f} % of a copy's bandwidth, {row['path']}")
    for row in record["surrogate"]:
        print(f"loss, {row['rule']}: {1e3 * row['seconds']:.3f} ms, {row['times_clip']:.2f} × fixed clip")
    for name, outcome in record["features"].items():
        print(f"{name}: {outcome}")
    for row in record["targets"]:
        print(Target(row["name"], row["relation"], row["target"], row["measured"]))


if __name__ == "__main__":
    sys.exit(main())
