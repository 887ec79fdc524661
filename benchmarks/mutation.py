"""``python -m benchmarks.mutation``: plant faults across the catalogue and count how many the property suite catches.

Writes benchmarks/results/mutation.json. Each fault of `benchmarks.planted` is put before the checks of `verify`, up to the
first one that fails: that check has caught it. Beside the faults stands a control group of bounds that are right; a check
that fails on one of those is a false alarm. Exit status: 0 all faults caught and no false alarm, 1 otherwise, 2 wrong usage.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import tyro
from rich.console import Console

from bandtheory.processor import usable_cores
from benchmarks import parallel
from benchmarks.environment import describe, json_bytes, one_thread_each, write_together

PACKAGES = ("bandtheory", "numpy", "scipy", "sympy", "mpmath", "cvxpy", "clarabel", "scs", "hypothesis")
CHUNK = 6  # faults of one divergence that a process tries in a row, so that it is derived once
LIMIT = 30.0  # seconds of processor time for one subject
SAMPLE = 4_000  # random tokens by which a survivor is explained

Row = dict[str, Any]


@dataclass(frozen=True)
class Settings:
    """Plant faults in generators, derivations and bounds, and count how many the property suite catches."""

    effort: Literal["quick", "default", "deep"] = "default"
    """How many inputs each check covers."""
    only: str = ""
    """Only faults with this text in their name, kind or divergence."""
    seed: int = 0
    """Of the suite's random inputs."""
    workers: int = 2
    """Processes, at most as many as there are cores."""
    out: Path = Path(__file__).parent / "results" / "mutation.json"
    """File to write."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Plant, count, write and print."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    settings = tyro.cli(Settings, prog="python -m benchmarks.mutation", args=given)
    return parallel.exit_status(lambda: measure(settings, given))


def measure(settings: Settings, arguments: Sequence[str]) -> int:
    """Try all faults and controls in processes, write the record, print the tables."""
    started = time.perf_counter()
    if settings.workers < 1 or settings.seed < 0:
        name, least = ("workers", 1) if settings.workers < 1 else ("seed", 0)
        raise ValueError(f"{name} is {getattr(settings, name)}; accepted: an integer of at least {least}")
    one_thread_each()  # before numpy is loaded
    names = selected(settings.only)
    if not names:
        raise ValueError(f"only is {settings.only!r}; accepted: a part of the name, kind or divergence of some fault")
    jobs = plan(names, settings.effort, settings.seed)
    console = Console(emoji=False, highlight=False, width=None if sys.stdout.isatty() else 200)
    workers = min(settings.workers, usable_cores())
    print(f"{len(names)} subjects in {workers} {'process' if workers == 1 else 'processes'}", flush=True)
    with parallel.display(len(jobs), console) as display:
        results = parallel.run(jobs, workers, display)
    rows = {row["name"]: row for found in results.values() for row in found}
    record = summary([rows[name] for name in names], settings)
    run = describe("benchmarks.mutation", arguments, PACKAGES) | {"seconds": round(time.perf_counter() - started, 1)}
    write_together({settings.out: json_bytes(record | {"run": run})})
    show(record, console)
    print(f"wrote {settings.out.name}")
    return 0 if not record["survivors"] and not record["false_alarms"] else 1


def selected(only: str) -> list[str]:
    """Names of the faults and controls that contain a text in name, kind or divergence."""
    from benchmarks.planted.catalogue import PLANTED

    return [fault.name for fault in PLANTED.values() if only in f"{fault.name}\n{fault.kind}\n{fault.divergence}"]


def plan(names: Sequence[str], effort: str, seed: int) -> dict[str, parallel.Job[list[Row]]]:
    """One job for a few subjects of one divergence; the costly control group first, so that processes end together."""
    from benchmarks.planted.catalogue import PLANTED, group

    jobs: dict[str, parallel.Job[list[Row]]] = {}
    ordered = sorted(names, key=lambda name: (PLANTED[name].kind != "control", group(PLANTED[name])))
    for (_, title), members in itertools.groupby(ordered, lambda n: (PLANTED[n].kind != "control", group(PLANTED[n]))):
        together = list(members)
        for start in range(0, len(together), CHUNK):
            part = f", {start // CHUNK + 1}" if len(together) > CHUNK else ""
            kind = "control" if PLANTED[together[0]].kind == "control" else "faults"
            jobs[f"{title}, {kind}{part}"] = partial(attempt, tuple(together[start : start + CHUNK]), effort, seed)
    return jobs


def attempt(names: Sequence[str], effort: str, seed: int, progress: parallel.Progress) -> list[Row]:
    """Rows of a few subjects, by name: a fault does not travel between processes."""
    from benchmarks.planted.catalogue import PLANTED

    rows = []
    for k, name in enumerate(names):
        rows.append(judge(PLANTED[name], effort, seed))
        progress(k + 1, len(names))
    return rows


class _OutOfTime(BaseException):
    """Ends a verification that takes too long; not an Exception, which hypothesis would take for a failure of a property."""


@contextlib.contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Raise `_OutOfTime` after so many seconds of this process' own time, where the system has such a timer."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: object) -> None:
        raise _OutOfTime

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds, 1.0)  # again each second: an exception in a callback is swallowed
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def judge(fault: Any, effort: str, seed: int) -> Row:
    """Put one subject before the suite: the first check that fails, its counter-example, and the time until then."""
    from bandtheory.evidence.properties import PROPERTIES
    from bandtheory.evidence.subject import subject
    from bandtheory.evidence.verification import checks_of

    trial = fault.plant()
    row: Row = {key: getattr(fault, key) for key in ("name", "kind", "divergence", "wrong", "why")}
    on_trial = subject(trial.divergence, trial.log_bounds)
    # beside bounds that are given, the generator and what was derived from it are the catalogue's, which are right
    names = None if trial.log_bounds is None else [law.name for law in PROPERTIES]
    started, caught, error = time.perf_counter(), None, None
    try:
        with _derivation(trial.derivation), _at_most(LIMIT):
            caught = next((check for check in checks_of(on_trial, effort, seed, names) if check.passed is False), None)
    except _OutOfTime:
        error = f"no check had failed after {LIMIT:g} s of processor time"
    except Exception as raised:  # a suite that breaks down has not caught anything, and the next fault is still to be tried
        error = f"the suite broke down: {type(raised).__name__}: {raised}"
    row |= {"caught": caught is not None, "check": caught and caught.name, "theorem": caught and caught.theorem, "error": error}
    row["seconds"] = round(time.perf_counter() - started, 2)
    row |= place(caught.counterexample or "") if caught else dict.fromkeys(("at", "p", "delta", "counterexample"))
    if caught is None and error is None and trial.log_bounds is not None and fault.kind != "control":
        row["share_wrong"] = share_wrong(fault.divergence, fault.plant().log_bounds, seed)
    return row


@contextlib.contextmanager
def _derivation(change: Any) -> Iterator[None]:
    """While inside, what `verify` is told was derived is changed by `change`."""
    if change is None:
        yield
        return
    from bandtheory.derivation import derive

    with mock.patch("bandtheory.evidence.verification.derive", lambda divergence: change(derive(divergence))):
        yield


def place(counterexample: str) -> Row:
    """Where a counter-example lies: the inputs in words, and p and δ as numbers where it has one of each."""
    at = re.search(r"(?:at|near)\s+((?:p = |u = ).*?)(?:,? extra.*)?$", counterexample, re.MULTILINE)
    p = re.search(r"\bp = (1 - )?([^\s,]+)", counterexample)
    delta = re.search(r"(?:delta|δ) = ([^\s,]+)", counterexample)
    return {
        "at": at.group(1).strip() if at else counterexample.splitlines()[0],
        "p": None if p is None else f"{p.group(1) or ''}{p.group(2)}",
        "delta": None if delta is None else delta.group(1),
        "counterexample": counterexample,
    }


def share_wrong(divergence: str, bounds: Any, seed: int) -> float:
    """Share of random tokens whose bounds are off by more than the promise, drawn by decades as the suite does."""
    import numpy as np

    from benchmarks.planted.fault import library

    rng, right, wrong = np.random.default_rng(seed), library(divergence), 0
    for delta in 10.0 ** rng.uniform(-12, 2, SAMPLE // 20):
        lowest, highest = np.array([(-2, 1), (0, np.log10(700)), (-300, np.log10(700))])[rng.integers(0, 3, 20)].T
        logp = -(10.0 ** rng.uniform(lowest, highest))
        expected = right(logp, float(delta))
        try:
            given = bounds(logp.copy(), float(delta))
        except ValueError:
            wrong += 20
            continue
        with np.errstate(all="ignore"):
            fine = [(x == y) | (np.abs(x - y) <= 1e-10 * np.abs(y)) for x, y in zip(given, expected, strict=True)]
        wrong += int(np.sum(~(fine[0] & fine[1])))
    return wrong / SAMPLE


def summary(rows: Sequence[Row], settings: Settings) -> Row:
    """The record: shares caught by kind and in all, survivors and false alarms with their reasons, and all rows."""
    from benchmarks.planted.fault import KINDS

    faults = [row for row in rows if row["kind"] != "control"]
    controls = [row for row in rows if row["kind"] == "control"]
    kinds = {kind: [row["caught"] for row in faults if row["kind"] == kind] for kind in KINDS}
    caught = sum(row["caught"] for row in faults)
    return {
        "what": "faults planted in generators, derivations and bounds, and the first check of the property suite that fails",
        "inputs": {"effort": settings.effort, "seed": settings.seed, "only": settings.only},
        "planted": len(faults),
        "caught": caught,
        "share": caught / len(faults) if faults else None,
        "kinds": [{"kind": k, "planted": len(v), "caught": sum(v), "share": sum(v) / len(v)} for k, v in kinds.items() if v],
        "survivors": [{"name": row["name"], "reason": reason(row, settings.effort)} for row in faults if not row["caught"]],
        "controls": len(controls),
        "false_alarms": [
            {"name": row["name"], "check": row["check"], "at": row["at"] or row["error"]}
            for row in controls
            if row["caught"] or row["error"]
        ],
        "rows": [{key: value for key, value in row.items() if key != "counterexample"} for row in rows],
    }


def reason(row: Mapping[str, Any], effort: str) -> str:
    """Why a fault was not seen."""
    share = row.get("share_wrong")
    if row["error"]:
        return str(row["error"])
    if share is None:
        return f"no check of the suite looks at this: {row['wrong']}"
    if share == 0:
        return (
            f"no wrong bound among {SAMPLE:,} random tokens, 20 to a call: it is rare, or wrong only in other calls than these"
        )
    return f"bounds are wrong for {100 * share:.2g} % of random tokens, and effort {effort!r} met none of them"


def show(record: Mapping[str, Any], console: Console) -> None:
    """The tables: every subject, shares by kind, and what survived or was flagged without reason."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title="planted faults and the control group")
    for heading in ("subject", "kind", "caught by", "seconds", "at"):
        table.add_column(heading, justify="right" if heading == "seconds" else "left", overflow="fold")
    for row in record["rows"]:
        control = row["kind"] == "control"
        verdict = row["check"] or ("passed" if control else "SURVIVED")
        style = "bold red" if row["caught"] == control else "green"
        cells = (row["name"], row["kind"], Text(verdict, style), f"{row['seconds']:.1f}", row["at"] or "")
        table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in cells))
    console.print(table)
    shares = Table(title="share caught")
    for heading in ("kind", "caught", "planted", "share"):
        shares.add_column(heading, justify="left" if heading == "kind" else "right")
    for row in [*record["kinds"], {"kind": "all", **{k: record[k] for k in ("caught", "planted", "share")}}]:
        share = "" if row["share"] is None else f"{100 * row['share']:.1f} %"
        shares.add_row(row["kind"], str(row["caught"]), str(row["planted"]), share, end_section=row is record["kinds"][-1:])
    console.print(shares)
    for survivor in record["survivors"]:
        print(f"survived: {survivor['name']}: {survivor['reason']}")
    for alarm in record["false_alarms"]:
        print(f"false alarm: {alarm['name']}: {alarm['check']} at {alarm['at']}")
    alarms = f"{len(record['false_alarms'])} false alarms in {record['controls']} controls"
    print(f"{record['caught']} of {record['planted']} faults caught; {alarms}")


if __name__ == "__main__":
    sys.exit(main())
