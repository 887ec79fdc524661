"""``python -m benchmarks.op``: what `bandtheory.torch` costs on the CPU, beside what people would write instead.

Writes benchmarks/results/op.json and, next to it, op_scaling.png. Times depend on the machine; ratios to baselines that took
turns with the operation in the same run depend on it much less, so targets are ratios.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
import tyro
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from torch import Tensor

from bandtheory.plots import render
from bandtheory.processor import usable_cores
from bandtheory.rules import parse
from bandtheory.torch.selftest import alternating, textbook_pearson
from benchmarks.environment import describe, json_bytes, write_together
from benchmarks.op_timing import (
    CLIP,
    DELTA,
    HALVES,
    KL,
    RULES,
    Calls,
    Target,
    bisection_kl,
    bundled_tokens,
    log_bounds_call,
    memory_rows,
    path,
    surrogate_rows,
    worst_of,
)

CPU = torch.device("cpu")
BISECTION_TARGET, BISECTION_AIM = 50.0, 100.0
PEARSON_TARGET = 3.0
SURROGATE_TARGET = 1.5
MEMORY_TARGET = 1.0
SMALLEST, LARGEST, LARGER = 10, 24, 26  # of the scaling, powers of two
SLOW_REPEATS = 3  # of what takes a second
LEAST_SECONDS = 2e-4  # of one measurement in the scaling: shorter calls are repeated


@dataclass(frozen=True)
class Settings:
    """Time bandtheory.torch on the CPU against bisection, against Pearson's closed form, and within the clipped loss."""

    tokens: int = 2**20
    """Log-probabilities in the tensor, resampled from the bundled tokens."""
    repeats: int = 7
    """The best of so many runs counts, each side of a ratio in turn."""
    rules: tuple[str, ...] = ()
    """Rules besides kl, which is always measured; none for all."""
    threads: int = field(default_factory=usable_cores)
    """Of torch."""
    seed: int = 0
    """Of the resampling."""
    largest: int = LARGEST
    """Power of two at which the scaling ends."""
    large: bool = False
    """Scale to 2**26 tokens."""
    out: Path = Path(__file__).parent / "results" / "op.json"
    """File to write; the figure goes next to it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write and print; whatever was met, the status is 0."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    settings = tyro.cli(Settings, prog="python -m benchmarks.op", args=given)
    for name, least in (("tokens", 1), ("repeats", 1), ("threads", 1), ("seed", 0), ("largest", SMALLEST)):
        if getattr(settings, name) < least:
            print(f"error: {name} is {getattr(settings, name)}; accepted: an integer of at least {least}", file=sys.stderr)
            return 2
    before = torch.get_num_threads()
    torch.set_num_threads(settings.threads)
    try:
        record = measure(settings) | {"run": describe("benchmarks.op", given, ("bandtheory", "numpy", "torch"))}
    except ValueError as error:  # an unknown rule
        print(f"error: {error}", file=sys.stderr)
        return 2
    finally:
        torch.set_num_threads(before)
    figure = settings.out.with_name(f"{settings.out.stem}_scaling.png")
    write_together({settings.out: json_bytes(record), figure: render(scaling_figure(record["scaling"]), "png")})
    _print(record)
    print(f"wrote {settings.out.name} and {figure.name}")
    return 0


def measure(settings: Settings) -> dict[str, Any]:
    """All measurements and the targets."""
    logp = bundled_tokens(settings.tokens, settings.seed)
    rules = list(dict.fromkeys([KL, *(str(parse(rule)) for rule in settings.rules or RULES)]))
    first = first_calls(rules)  # before anything else has built a table
    bisection = _bisection(logp, settings.repeats)
    rows = [_rule_row(logp, rule, settings.repeats, bisection["seconds"]) | first[rule] for rule in rules]
    surrogate = surrogate_rows(logp, rules, settings.seed, partial(_best, repeats=settings.repeats))
    memory = memory_rows(logp, rules)
    return {
        "what": "wall seconds on the CPU, best of the repeats; each side of a ratio in turn; 'path' is the implementation used",
        "inputs": {
            "logp": "float32, log-probabilities of chain_sum_tokens.npz drawn with replacement",
            "tokens": settings.tokens,
            "delta": DELTA,
            "seed": settings.seed,
            "repeats": settings.repeats,
            "threads": settings.threads,
        },
        "targets": [target.row() for target in targets(bisection, rows, surrogate, memory)],
        "bisection": bisection,
        "rules": rows,
        "surrogate": surrogate,
        "dtypes": _dtypes(logp, settings.repeats),
        "memory": memory,
        "scaling": _scaling(settings),
    }


def first_calls(rules: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Seconds of the first call of each rule, on one token, in this order: derivations and tables are made then and kept."""
    token, found = torch.tensor([-1.0]), {}
    for rule in rules:
        first, again = alternating({rule: log_bounds_call(token, rule)}, 2, CPU, warm_up=0)[rule]
        found[rule] = {"first_call_seconds": first, "one_token_seconds": again}
    return found


def _best(calls: Calls, repeats: int) -> dict[str, float]:
    return {name: min(seconds) for name, seconds in alternating(calls, repeats, CPU).items()}


def _bisection(logp: Tensor, repeats: int) -> dict[str, Any]:
    """kl against 50 bisection steps with a convergence test each, and against the same one stopped at 1e-6."""
    calls: dict[str, Callable[[], object]] = {
        "kl": log_bounds_call(logp, KL),
        "all": lambda: bisection_kl(logp, DELTA),
        "stopped": lambda: bisection_kl(logp, DELTA, tolerance=1e-6),
    }
    best = _best(calls, min(repeats, SLOW_REPEATS))
    return {
        "kl_seconds": best["kl"],
        "seconds": best["all"],
        "steps": bisection_kl(logp, DELTA)[2],
        "times_faster": best["all"] / best["kl"],
        "stopped_at_1e-6_seconds": best["stopped"],
        "stopped_at_1e-6_steps": bisection_kl(logp, DELTA, tolerance=1e-6)[2],
        "times_faster_than_stopped": best["stopped"] / best["kl"],
    }


def _rule_row(logp: Tensor, rule: str, repeats: int, bisection_seconds: float) -> dict[str, Any]:
    best = _best({"rule": log_bounds_call(logp, rule), "pearson": lambda: textbook_pearson(logp, DELTA)}, repeats)
    return {
        "rule": rule,
        "path": path(rule, logp.device),
        "seconds": best["rule"],
        "pearson_seconds": best["pearson"],
        "times_pearson": best["rule"] / best["pearson"],
        "times_faster_than_bisection": bisection_seconds / best["rule"],
    }


def _dtypes(logp: Tensor, repeats: int) -> list[dict[str, Any]]:
    """kl on other float types, beside float32."""
    rows = []
    for dtype in (*HALVES, torch.float64):
        calls: dict[str, Callable[[], object]] = {
            "this": log_bounds_call(logp.to(dtype), KL),
            "float32": log_bounds_call(logp, KL),
        }
        best = _best(calls, repeats if dtype in HALVES else min(repeats, SLOW_REPEATS))
        row = {"dtype": str(dtype).removeprefix("torch."), "rule": KL, "path": path(KL, logp.device, dtype)}
        rows.append(row | {"seconds": best["this"], "times_float32": best["this"] / best["float32"]})
    return rows


def _scaling(settings: Settings) -> list[dict[str, Any]]:
    """Seconds by number of tokens; short calls are repeated within a measurement."""
    rows = []
    for power in range(SMALLEST, (max(settings.largest, LARGER) if settings.large else settings.largest) + 1, 2):
        logp = bundled_tokens(2**power, settings.seed)
        calls: dict[str, Callable[[], object]] = {rule: log_bounds_call(logp, rule) for rule in (KL, CLIP)}
        calls["Pearson, plain torch"] = lambda logp=logp: textbook_pearson(logp, DELTA)  # type: ignore[misc]
        once = _best(calls, 1)
        times = {name: max(1, math.ceil(LEAST_SECONDS / max(seconds, 1e-7))) for name, seconds in once.items()}
        best = _best({name: _repeated(call, times[name]) for name, call in calls.items()}, min(settings.repeats, SLOW_REPEATS))
        rows += [
            {
                "what": name,
                "tokens": 2**power,
                "seconds": best[name] / times[name],
                "ns_a_token": 1e9 * best[name] / times[name] / 2**power,
            }
            for name in calls
        ]
    return rows


def _repeated(call: Callable[[], object], times: int) -> Callable[[], object]:
    def repeated() -> None:
        for _ in range(times):
            call()

    return repeated


def targets(
    bisection: dict[str, Any], rows: list[dict[str, Any]], surrogate: list[dict[str, Any]], memory: list[dict[str, Any]]
) -> list[Target]:
    """What the operation should reach: for kl, and for the worst of all rules, which is named."""
    kl = next(row for row in rows if row["rule"] == KL)
    steps, textbook = f"{bisection['steps'] // 2} bisection steps a bound", "times the textbook Pearson form"
    loss, memory_name = "loss forward and backward: times the fixed clip", "memory beyond the outputs: times the input"
    return [
        Target(f"{KL}: times faster than {steps}", "at least", BISECTION_TARGET, bisection["times_faster"]),
        Target(f"{KL}: times faster than {steps}, the aim", "at least", BISECTION_AIM, bisection["times_faster"]),
        Target(f"{KL}: {textbook}", "at most", PEARSON_TARGET, kl["times_pearson"]),
        worst_of(rows, "times_faster_than_bisection", f"times faster than kl by {steps}", "at least", BISECTION_TARGET),
        worst_of(rows, "times_pearson", textbook, "at most", PEARSON_TARGET),
        worst_of(surrogate, "times_clip", loss, "at most", SURROGATE_TARGET),
        worst_of(memory, "times_input", memory_name, "at most", MEMORY_TARGET),
    ]


def scaling_figure(rows: Sequence[dict[str, Any]]) -> Any:
    """Time a token against the number of tokens, a line each."""
    figure = Figure(figsize=(6.4, 4.2), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for name, colour in zip(dict.fromkeys(row["what"] for row in rows), ("#0072B2", "#000000", "#CC79A7"), strict=True):
        line = [row for row in rows if row["what"] == name]
        axes.plot([row["tokens"] for row in line], [row["ns_a_token"] for row in line], "o-", color=colour, label=name)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("tokens")
    axes.set_ylabel("nanoseconds a token, both bounds")
    axes.grid(True, color="#e3e3e3", linewidth=0.7)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure


def _print(record: dict[str, Any]) -> None:
    for row in record["rules"]:
        print(
            f"{row['rule']}: {1e3 * row['seconds']:.2f} ms, {row['times_pearson']:.2f} × Pearson, "
            f"{row['times_faster_than_bisection']:.0f} × faster than bisection, first call {row['first_call_seconds']:.2f} s, "
            f"{row['path']}"
        )
    cut = record["bisection"]
    stopped = f"{1e3 * cut['stopped_at_1e-6_seconds']:.0f} ms with the {cut['stopped_at_1e-6_steps']} to a width of 1e-6"
    print(f"kl by bisection: {1e3 * cut['seconds']:.0f} ms with {cut['steps']} steps, {stopped}")
    for row in record["surrogate"]:
        print(f"loss, {row['rule']}: {1e3 * row['seconds']:.2f} ms, {row['times_clip']:.2f} × fixed clip")
    for row in record["dtypes"]:
        print(f"{row['dtype']}: {1e3 * row['seconds']:.2f} ms, {row['times_float32']:.2f} × float32, {row['path']}")
    for row in record["memory"]:
        print(f"memory, {row['rule']}: {row['times_input']:.2f} × the input beyond the outputs")
    for row in record["targets"]:
        print(Target(row["name"], row["relation"], row["target"], row["measured"]))


if __name__ == "__main__":
    sys.exit(main())
