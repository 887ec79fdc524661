"""``python -m bandtheory.torch.selftest``: is the tensor operation of this installation right, and fast, on this machine?

- **Right.** Bands are compared with enclosures in ball arithmetic, which know the generator and the radius and nothing of the
  library's bounds; other rules with their formulas in 50 digits. The worst of random tokens (seeded) and hostile ones counts,
  in every float dtype. The clipped loss and its gradient are compared with autograd through the formula in float64.
- **Fast.** kl, which has no closed form, against the textbook closed form of Pearson χ² in plain torch on the same device.

Exit status: 0 right and fast, 1 a check failed, 2 wrong usage.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Annotated, Any

import torch
import tyro
from torch import Tensor

from bandtheory.catalogue import examples
from bandtheory.processor import usable_cores
from bandtheory.rules import NoClip, parse
from bandtheory.terminal import UsageError, console, exit_status, print_json, progress
from bandtheory.torch import log_bounds
from bandtheory.torch.selftest_checks import Check, Failure, Interval, Job, bounds_job, deviation, loss_job, outcome, sample

__all__ = ["Failure", "Interval", "alternating", "deviation", "find_device", "main", "report", "sample", "textbook_pearson"]

PROGRAM = "python -m bandtheory.torch.selftest"
DELTA = 0.05
RULES = (*(f"band:{name}:{DELTA}" for name in examples()), "band:kl:0.05:10", "clip:0.2,0.28", "dcpo", "relaxed")
SPEED_RULE = f"band:kl:{DELTA}"
LOSS_RULES = ("clip:0.2,0.28", "band:kl:0.05:10")
QUICK = ("reverse_kl", "tv", "neyman_chi2", "jeffreys", "symmetric_chi2")  # divergences whose tables are built soonest
SPEED_TOKENS = 2**20
SPEED_REPEATS = 7
MOST_TIMES_PEARSON = 3.0


@dataclass(frozen=True)
class Settings:
    """Compare bandtheory.torch with ball arithmetic and with written-out formulas, and time it, within half a minute."""

    device: str | None = None
    """Such as cpu, cuda or cuda:1; without it cuda where there is one, else cpu."""
    rules: Annotated[tuple[str, ...], tyro.conf.arg(metavar="RULE ...", help_behavior_hint="(default: all)")] = ()
    """Rules whose bounds are checked."""
    speed: bool = True
    """Time it as well."""
    seed: int = 0
    """Of the random tokens."""
    workers: int = field(default_factory=usable_cores)
    """Processes that check bounds; 1 for none but this one."""
    as_json: Annotated[bool, tyro.conf.arg(name="json", help_behavior_hint=""), tyro.conf.FlagCreatePairsOff] = False
    """Print JSON and nothing else."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Check, print, and return the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    return exit_status(PROGRAM, lambda: report(tyro.cli(Settings, prog=PROGRAM, args=given)))


def report(settings: Settings) -> int:
    """All checks of one device; 0 if they hold and 1 otherwise.

    Raises:
        UsageError: a device that does not exist here, a negative seed, no worker, a rule without bounds.
        RuleError, DivergenceError: an unknown rule.
    """
    device = find_device(settings.device)
    for option, least in (("seed", 0), ("workers", 1)):
        if getattr(settings, option) < least:
            raise UsageError(f"--{option} is {getattr(settings, option)}; accepted: an integer of at least {least}")
    parsed = [parse(rule) for rule in settings.rules or RULES]
    if any(isinstance(rule, NoClip) for rule in parsed):
        raise UsageError("--rules has 'none', which bounds nothing; accepted: clip, dcpo, band and relaxed")
    bounds: dict[str, Job] = {f"bounds of {rule}": partial(bounds_job, str(rule), device, settings.seed) for rule in parsed}
    losses: dict[str, Job] = {f"loss and gradient, {rule}": partial(loss_job, rule, device) for rule in LOSS_RULES}
    speed: dict[str, Job] = {"speed of kl": partial(speed_job, device)} if settings.speed else {}
    names = [*bounds, *losses, *speed]
    done: dict[str, Check] = {}
    with progress("checking") as say:
        for check in _outcomes(bounds, losses, speed, settings.workers):
            done[check.name] = check
            say(len(done), len(names), check.name)
    return _print([done[name] for name in names], device, settings)


def find_device(name: str | None) -> torch.device:
    """The device of that name, or the best there is, once a number has been there and come back."""
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    accepted = ", ".join(["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))])
    try:
        device = torch.device(name)
        torch.ones(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).partition("\n")[0].partition(". ")[0]
        raise UsageError(f"--device is {name!r}, which cannot be used ({reason}); accepted here: {accepted}") from None
    return device


def _print(checks: Sequence[Check], device: torch.device, settings: Settings) -> int:
    """The report; returns the exit status."""
    failed = [check.name for check in checks if not check.passed]
    model = torch.cuda.get_device_name(device) if device.type == "cuda" else f"{torch.get_num_threads()} threads"
    about = {"device": f"{device} ({model})", "torch": torch.__version__, "passed": not failed}
    if settings.as_json:
        print_json({**about, "checks": [asdict(check) for check in checks]})
    else:
        _print_table(about, checks)
        what = "right and fast" if settings.speed else "right; speed was not measured"
        print(f"FAILED: {', '.join(failed)}" if failed else f"{what}: {len(checks)} checks passed on {about['device']}")
    return 1 if failed else 0


def _print_table(about: Mapping[str, Any], checks: Sequence[Check]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(
        "check", "result", title=f"bandtheory.torch on {about['device']}, torch {about['torch']}", title_justify="left"
    )
    table.add_column("detail", overflow="fold")
    for check in checks:
        result = Text("passed", style="green") if check.passed else Text("FAILED", style="bold red")
        table.add_row(Text(check.name), result, Text(check.detail))
    console().print(table)


# --- sharing the work --------------------------------------------------------------------------------------------------------


def _outcomes(bounds: Mapping[str, Job], losses: Mapping[str, Job], speed: Mapping[str, Job], workers: int) -> Iterator[Check]:
    """Checks as they are done. Most of the time goes into the tables of the rules, and no process builds one that another has.

    This process does what shares its tables with losses and speed, while the others start, and then as much as they do. Speed
    is measured when they are gone.
    """
    ours = [name for name in bounds if name.removeprefix("bounds of ") in (SPEED_RULE, *LOSS_RULES)]
    here = {name: bounds[name] for name in ours} | dict(losses)
    shared = {name: bounds[name] for name in sorted(bounds, key=_is_quick) if name not in ours}
    if workers > 1 and shared:
        yield from _shared(here, shared, workers - 1)
    else:
        yield from (outcome(name, job) for name, job in {**shared, **here}.items())
    yield from (outcome(name, job) for name, job in speed.items())


def _is_quick(name: str) -> bool:
    """Whether a check of bounds is better left to the end, when a long one would leave the other processes idle."""
    _, _, rule = name.rpartition(" ")
    return not rule.startswith("band:") or rule.startswith(tuple(f"band:{divergence}:" for divergence in QUICK))


def _shared(here: Mapping[str, Job], shared: Mapping[str, Job], others: int) -> Iterator[Check]:
    """Those of `here` in this process, and those of `shared` in whichever process is free, others being as many."""
    threads = torch.get_num_threads()
    context = multiprocessing.get_context("spawn")  # a device cannot be used after a fork
    with ProcessPoolExecutor(min(others, len(shared)), context, torch.set_num_threads, (1,)) as pool:
        torch.set_num_threads(1)
        try:
            elsewhere = {name: pool.submit(outcome, name, job) for name, job in shared.items()}
            for name, job in [*here.items(), *shared.items()]:
                if name in here or (name in elsewhere and elsewhere[name].cancel()):  # what has not begun can be taken back
                    elsewhere.pop(name, None)
                    yield outcome(name, job)
                for ended in [name for name, future in elsewhere.items() if future.done()]:
                    yield _fetched(ended, elsewhere.pop(ended))
            yield from (_fetched(name, future) for name, future in elsewhere.items())
        finally:
            pool.shutdown(cancel_futures=True)
            torch.set_num_threads(threads)


def _fetched(name: str, future: Future[Check]) -> Check:
    try:
        return future.result()
    except BrokenProcessPool:
        return Check(
            name, False, "not checked: a process ended before its time, for want of memory or by a fault of the device"
        )


# --- speed -------------------------------------------------------------------------------------------------------------------


def textbook_pearson(logp: Tensor, delta: float) -> tuple[Tensor, Tensor]:
    """`1 ± √(δ(1 − p)/p)`, clamped to [0, 1/p], logarithms taken: the closed form as one would write it in plain torch."""
    p = torch.exp(logp)
    move = torch.sqrt(delta * (1 - p) / p)
    return torch.log(torch.clamp(1 - move, min=0)), torch.log(torch.minimum(1 + move, 1 / p))


def alternating(
    calls: Mapping[str, Callable[[], object]], repeats: int, device: torch.device, warm_up: int = 1
) -> dict[str, list[float]]:
    """Seconds of each call, taken in turns so that a machine's noise hits all alike; the first rounds are not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(warm_up + repeats):
        for name, call in calls.items():
            seconds[name].append(_timed(call, device))
    return {name: taken[warm_up:] for name, taken in seconds.items()}


def _timed(call: Callable[[], object], device: torch.device) -> float:
    if device.type == "cuda":
        with torch.cuda.device(device):
            started: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            ended: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            torch.cuda.synchronize()
            started.record()
            call()
            ended.record()
            torch.cuda.synchronize()
        return 1e-3 * float(started.elapsed_time(ended))
    before = time.perf_counter()
    call()
    return time.perf_counter() - before


def speed_job(device: torch.device) -> str:
    """kl against the textbook Pearson form, best of several each; on an accelerator also against a copy of as many bytes.

    On the CPU by one thread: several wait for each other, which on a busy machine is all that would be measured.
    """
    random = torch.Generator().manual_seed(0)
    logp = torch.log(torch.rand(SPEED_TOKENS, generator=random).clamp(min=1e-6)).to(device)
    calls: dict[str, Callable[[], object]] = {
        "kl": lambda: log_bounds(logp, SPEED_RULE),
        "pearson": lambda: textbook_pearson(logp, DELTA),
    }
    if device.type == "cuda":  # 4 bytes read and 8 written a token: a copy of 6 bytes a token moves as many
        source = torch.zeros(6 * SPEED_TOKENS, dtype=torch.uint8, device=device)
        target = torch.empty_like(source)
        calls["copy"] = lambda: target.copy_(source)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        best = {name: min(seconds) for name, seconds in alternating(calls, SPEED_REPEATS, device).items()}
    finally:
        torch.set_num_threads(threads)
    times = best["kl"] / best["pearson"]
    copy = f"; {100 * best['copy'] / best['kl']:.0f} % of the bandwidth of a copy" if "copy" in best else ""
    found = (
        f"{1e3 * best['kl']:.3g} ms for {SPEED_TOKENS:,} float32 tokens, {times:.2f} times Pearson's closed form in plain "
        f"torch, {1e3 * best['pearson']:.3g} ms; accepted {MOST_TIMES_PEARSON:g} times{copy}"
    )
    if not times <= MOST_TIMES_PEARSON:
        raise Failure(found)
    return found


if __name__ == "__main__":
    sys.exit(main())
