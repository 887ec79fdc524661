"""What the benchmarks of the tensor operation share: tokens, rules, baselines, paths, targets."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from bandtheory.audit import example_path
from bandtheory.catalogue import examples
from bandtheory.tokens import TokenData
from bandtheory.torch import log_bounds, policy_loss
from bandtheory.torch.lookup import constant_bounds

DELTA = 0.05
KL = f"band:kl:{DELTA}"
PEARSON = f"band:pearson_chi2:{DELTA}"
CLIP = "clip:0.2,0.2"
BANDS = tuple(f"band:{name}:{DELTA}" for name in examples())
RULES = (*BANDS, f"{KL}:10", CLIP, "dcpo:0.16,0.2", "relaxed:kl:0.05:10")
HALVES = (torch.bfloat16, torch.float16)

Calls = Mapping[str, Callable[[], object]]
Timer = Callable[[Calls], dict[str, float]]  # seconds of each call, taken in turns


@dataclass(frozen=True)
class Target:
    """A number to reach: `relation` is "at least" or "at most"; `met` follows from the measurement."""

    name: str
    relation: str
    target: float
    measured: float

    @property
    def met(self) -> bool:
        """False as well where nothing could be measured, which is NaN."""
        return self.measured >= self.target if self.relation == "at least" else self.measured <= self.target

    def row(self) -> dict[str, Any]:
        """For the record."""
        return asdict(self) | {"met": self.met}

    def __str__(self) -> str:
        return f"{'met' if self.met else 'NOT MET'}: {self.name}: {self.measured:.3g}, {self.relation} {self.target:g}"


def bundled_tokens(count: int, seed: int, device: torch.device | str = "cpu") -> Tensor:
    """float32 log-probabilities of the bundled step of a language model, drawn with replacement."""
    with TokenData(example_path()) as data:
        found = np.concatenate([chunk.old_logp for chunk in data.chunks(2**16)])
    drawn = np.random.default_rng(seed).integers(len(found), size=count)
    return torch.from_numpy(found.astype(np.float32)[drawn]).to(device)


def bisection_kl(logp: Tensor, delta: float, steps: int = 50, tolerance: float = 0.0) -> tuple[Tensor, Tensor, int]:
    """Both log-bounds of kl by bisection on q in probability space, with a convergence test in each step.

    `g(q) = p log(p/q) + (1 − p) log((1 − p)/(1 − q)) ≤ δ` for q in [p, 1] above and [0, p] below; what does not depend on q is
    computed once. `torch.all` waits for the device, as in published implementations. Also returns the steps taken: with the
    default tolerance, an interval of width 0 everywhere, hardly any batch ends before the last.
    """
    p = torch.exp(logp)
    rest = -torch.expm1(logp)
    slack = torch.special.entr(p) + torch.special.entr(rest) + delta  # g(q) ≤ δ iff −p log q − (1 − p) log(1 − q) ≤ slack
    ends, taken = [], 0
    for upper in (False, True):
        feasible_end, other = p.clone(), torch.ones_like(p) if upper else torch.zeros_like(p)
        for _ in range(steps):
            middle = 0.5 * (feasible_end + other)
            feasible = -p * torch.log(middle) - rest * torch.log1p(-middle) <= slack
            feasible_end, other = torch.where(feasible, middle, feasible_end), torch.where(feasible, other, middle)
            taken += 1
            if torch.all((other - feasible_end).abs() <= tolerance):
                break
        ends.append(torch.log(feasible_end) - logp)
    return ends[0], ends[1], taken


def surrogate_step(logp: Tensor, seed: int) -> Callable[[str], Callable[[], object]]:
    """For a rule, a call of the clipped loss forward and backward on sequences of these tokens, ratios on both sides."""
    random = torch.Generator().manual_seed(seed)
    width = min(256, len(logp))
    old = logp[: len(logp) // width * width].reshape(-1, width)
    new = (old + 0.1 * torch.randn(old.shape, generator=random).to(old.device)).clamp(max=0).requires_grad_()
    advantages = torch.randn(len(old), 1, generator=random).to(old.device)
    mask = (torch.rand(old.shape, generator=random) < 0.9).to(old.device)

    def prepared(rule: str) -> Callable[[], object]:
        def step() -> Tensor | None:
            new.grad = None
            policy_loss(new, old, advantages, mask, rule=rule)[0].backward()
            return new.grad

        return step

    return prepared


def path(rule: str, device: torch.device, dtype: torch.dtype = torch.float32) -> str:
    """Which implementation the bounds of a rule come from: seen from the functions that a call enters, not assumed."""
    if constant_bounds(rule) is not None:
        return "a constant"
    token = torch.full((1,), -1.0, dtype=dtype, device=device)
    log_bounds(token, rule)  # what is made once is made
    entered = set()
    before = sys.getprofile()
    sys.setprofile(lambda frame, *_: entered.add((frame.f_globals.get("__name__"), frame.f_code.co_name)))
    try:
        log_bounds(token, rule)
    finally:
        sys.setprofile(before)
    package = "bandtheory.torch."
    modules = {
        name.removeprefix(package)
        for name, function in entered
        if name and (name, function) != (f"{package}kernels", "available")
    }
    table = "list of all 16-bit floats" if dtype in HALVES else "float32 table"
    if "kernels" in modules:
        return f"{table}, Triton kernel"
    if "lookup" in modules and any(function.startswith("look_up") for _, function in entered):
        return f"{table}, eager operations"
    return "float64 library" if "bandtheory.engine" in modules or device.type == "cpu" else "float64 formulas on the device"


def surrogate_rows(logp: Tensor, rules: Sequence[str], seed: int, timer: Timer) -> list[dict[str, Any]]:
    """Seconds of the loss forward and backward under each rule, its bounds included, beside those under a fixed clip."""
    prepared, rows = surrogate_step(logp, seed), []
    for rule in rules:
        seconds = timer({"rule": prepared(rule), "clip": prepared(CLIP)})
        row = {"rule": rule, "seconds": seconds["rule"], "clip_seconds": seconds["clip"]}
        rows.append(row | {"times_clip": seconds["rule"] / seconds["clip"]})
    return rows


def memory_rows(logp: Tensor, rules: Sequence[str]) -> list[dict[str, Any]]:
    """What one call allocates beyond its outputs, also as a multiple of its input."""
    rows = []
    for rule in rules:
        extra = allocated_beyond_outputs(log_bounds_call(logp, rule), logp.device)
        rows.append({"rule": rule, "bytes_beyond_outputs": extra, "times_input": extra / logp.untyped_storage().nbytes()})
    return rows


def worst_of(rows: Iterable[dict[str, Any]], key: str, what: str, relation: str, target: float) -> Target:
    """A target for the worst of all rules, which its name holds."""
    pick = min if relation == "at least" else max
    worst = pick(rows, key=lambda row: row[key])
    return Target(f"{what}, worst rule, {worst['rule']}", relation, target, worst[key])


def allocated_beyond_outputs(call: Callable[[], Iterable[Tensor]], device: torch.device) -> int:
    """Bytes that are allocated at the worst moment of a call, less those of its outputs.

    On a device by its allocator. On the CPU the profiler sees what torch allocates and, in another call, tracemalloc what numpy
    does; the sum of both peaks is at least the peak of the sum. A first call, which may build tables, does not count.
    """
    outputs = sum(output.untyped_storage().nbytes() for output in call())
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        call()
        return int(torch.cuda.max_memory_allocated(device) - before - outputs)
    return max(_torch_peak(call) + _numpy_peak(call) - outputs, 0)


def _torch_peak(call: Callable[[], object]) -> int:
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        kept = call()
    del kept
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return int(peak)


def _numpy_peak(call: Callable[[], object]) -> int:
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return int(peak - before)


def log_bounds_call(logp: Tensor, rule: str) -> Callable[[], tuple[Tensor, Tensor]]:
    """A call of the operation, for a timer."""
    return lambda: log_bounds(logp, rule)
