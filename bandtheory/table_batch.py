"""Many lookup tables: their file names, what is there already, and a few processes that build or check the others."""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, fields
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from bandtheory._version import __version__
from bandtheory.catalogue import find
from bandtheory.divergence import divergence
from bandtheory.evidence.user_files import Target
from bandtheory.evidence.workers import Work, in_processes
from bandtheory.radius_table import RadiusTable
from bandtheory.table_files import Table, load_table
from bandtheory.table_proof import Report
from bandtheory.tables import BandTable, TableError, written_out

READABLE = (".safetensors", ".npz")  # what `load_table` reads
_SECONDS_BETWEEN_STEPS = 0.1  # of the progress of a process
_SLUG = 24  # characters of an expression in a file name


@dataclass(frozen=True)
class Request:
    """The arguments of `BandTable.build`; `divergence` as `FDivergence.spec`."""

    divergence: str
    delta: float
    logp_min: float = -104.0
    max_error: float = 1e-6
    dtype: str = "float32"
    inside: bool = False

    @property
    def label(self) -> str:
        return f"{self.divergence}, delta {_number(self.delta)}"

    @property
    def stem(self) -> str:
        """A file name without suffix, a different one for each request: `vajda_1.5_delta0.05_error0.001_inside`.

        The radius is always in it, other arguments where they are not the default. An expression is a slug of its text and the
        first ten digits of its SHA-256.
        """
        return _stem(self, f"delta{_number(self.delta)}")

    def build(self, progress: Report | None = None) -> BandTable:
        return BandTable.build(
            self.divergence,
            self.delta,
            logp_min=self.logp_min,
            max_error=self.max_error,
            dtype=self.dtype,
            inside=self.inside,
            progress=progress,
        )

    def difference(self, table: Table) -> str | None:
        """What makes a table another one than `build` would return here, in words; None if nothing does."""
        names = ("delta", "max_error", "dtype", "inside")
        return _difference(self, table, BandTable, names)


@dataclass(frozen=True)
class RadiusRequest:
    """The arguments of `RadiusTable.build`; `divergence` as `FDivergence.spec`."""

    divergence: str
    delta_min: float
    delta_max: float
    logp_min: float = -104.0
    max_error: float = 1e-4
    inside: bool = False

    @property
    def label(self) -> str:
        return f"{self.divergence}, delta {_number(self.delta_min)} to {_number(self.delta_max)}"

    @property
    def stem(self) -> str:
        """A file name without suffix, as that of a `Request`."""
        return _stem(self, f"delta{_number(self.delta_min)}to{_number(self.delta_max)}")

    def build(self, progress: Report | None = None) -> RadiusTable:
        settings = {"logp_min": self.logp_min, "max_error": self.max_error, "inside": self.inside}
        return RadiusTable.build(self.divergence, self.delta_min, self.delta_max, **settings, progress=progress)  # type: ignore[arg-type]

    def difference(self, table: Table) -> str | None:
        """As of a `Request`."""
        return _difference(self, table, RadiusTable, ("delta_min", "delta_max", "max_error", "inside"))


AnyRequest = Request | RadiusRequest


def _stem(request: AnyRequest, radius: str) -> str:
    default = {field.name: field.default for field in fields(request)}
    settings = {
        "max_error": f"error{_number(request.max_error)}",
        "logp_min": f"logp{_number(request.logp_min)}",
        "dtype": getattr(request, "dtype", ""),
        "inside": "inside",
    }
    others = [text for name, text in settings.items() if name in default and getattr(request, name) != default[name]]
    return "_".join([_name(request.divergence), radius, *others])


def _difference(request: AnyRequest, table: Table, kind: type[Table], names: Sequence[str]) -> str | None:
    if not isinstance(table, kind):
        return f"it holds a {type(table).__name__}"
    expected = {"divergence": request.divergence, "generator": written_out(divergence(request.divergence))}
    expected |= {name: getattr(request, name) for name in names} | {"version": __version__}
    for name, value in expected.items():
        if getattr(table, name) != value:
            return f"its {name} is {getattr(table, name)!r}, not {value!r}"
    last = np.float32(table.logp_min)  # the domain may begin between two float32; the table begins at the lower one
    if not last <= request.logp_min < float(np.nextafter(last, np.float32(np.inf))):
        return f"its logp_min is {table.logp_min!r}, not {request.logp_min!r}"
    return None


def _number(value: float) -> str:
    """The shortest text of a float: `0.05`, `1`, `1e-06`."""
    return repr(float(value) + 0.0).removesuffix(".0")


def _name(spec: str) -> str:
    if find(spec):
        return spec.replace(":", "_").replace("/", "over")
    slug = re.sub(r"[^a-z0-9]+", "-", spec.lower())[: _SLUG + 1].strip("-")
    return f"{slug}-{hashlib.sha256(spec.encode()).hexdigest()[:10]}"


def kept(request: AnyRequest, folder: Path, note: Callable[[str], None]) -> dict[str, Table]:
    """The tables of a request that lie whole in a folder, by suffix; `note` is told of each file that cannot be used."""
    found = {}
    for suffix in READABLE:
        path = folder / f"{request.stem}{suffix}"
        if not path.exists():
            continue
        try:
            table = load_table(path)
            problem = request.difference(table)
        except (TableError, OSError) as error:
            problem = str(error)
        if problem is None:
            found[suffix] = table
        else:
            note(f"{path} is not used: {problem.removeprefix(f'{path}: ')}")
    return found


def certified_again(path: Path, progress: Report) -> tuple[Table | None, list[str]]:
    """The table of a file, unless that is damaged, and what does not hold."""
    try:
        table = load_table(path)
    except TableError as error:
        return None, [str(error)]
    return table, table.check(progress)


@dataclass(frozen=True)
class Outcome:
    """What a task returned, or why it did not; `index` is its place in the order."""

    index: int
    value: Any = None
    error: str | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class Task:
    """One table to build or to check; both functions and arguments must be picklable.

    Attributes:
        label: for people.
        action: called with a function that is to be told the numbers of rows done and of all.
    """

    label: str
    action: Callable[[Report], Any]


def perform(
    tasks: Sequence[Task], workers: int, progress: Callable[[int, int | None, str], None]
) -> Generator[Outcome, None, None]:
    """The outcome of each task, as soon as it is there; with more than one worker each task is done in another process.

    `progress` is told how many rows are done, how many there are (an estimate until the last task has begun), and in words how
    many tasks are done. What a task raises is an outcome. A process that dies ends all: what is not done then says so.
    """
    meter = _Meter(len(tasks), progress)
    if workers == 1 or len(tasks) == 1:
        for index, task in enumerate(tasks):
            outcome = _outcome(index, task, lambda done, total, index=index: meter.step(index, done, total))  # type: ignore[misc]
            meter.finish(index)
            yield outcome
        return
    left = set(range(len(tasks)))
    work = SimpleNamespace(jobs=deque(_Job(index, task) for index, task in enumerate(tasks)))
    try:
        with closing(in_processes(cast(Work, work), min(workers, len(tasks)))) as events:
            for event in events:
                message = cast("Outcome | tuple[int, int] | None", event.check)
                if isinstance(message, Outcome):
                    left.remove(event.index)
                    meter.finish(event.index)
                    yield message
                elif message is not None:
                    meter.step(event.index, *message)
    except ChildProcessError as error:
        for index in sorted(left):
            yield Outcome(index, error=f"not done: {error}")


def _outcome(index: int, task: Task, progress: Report) -> Outcome:
    started = time.perf_counter()
    try:
        value = task.action(progress)
    except (ValueError, OSError) as error:
        return Outcome(index, error=str(error), seconds=time.perf_counter() - started)
    except Exception as error:
        return Outcome(index, error=f"{type(error).__name__}: {error}", seconds=time.perf_counter() - started)
    return Outcome(index, value, seconds=time.perf_counter() - started)


@dataclass(frozen=True)
class _Job:
    """A task as `bandtheory.evidence.workers` runs it: an iterator, which a thread feeds, as the action calls back."""

    index: int
    task: Task

    @property
    def target(self) -> Target:
        return Target(self.task.label)

    @property
    def names(self) -> tuple[str, ...]:
        return ("table",)

    def run(self) -> Iterator[Outcome | tuple[int, int]]:
        messages: SimpleQueue[Outcome | tuple[int, int]] = SimpleQueue()
        last = time.monotonic()

        def say(done: int, total: int) -> None:
            nonlocal last
            if time.monotonic() - last >= _SECONDS_BETWEEN_STEPS:
                last = time.monotonic()
                messages.put((done, total))

        threading.Thread(target=lambda: messages.put(_outcome(self.index, self.task, say)), daemon=True).start()
        while True:
            message = messages.get()
            yield message
            if isinstance(message, Outcome):
                return


class _Meter:
    """Adds up the progress of several tasks."""

    def __init__(self, count: int, report: Callable[[int, int | None, str], None]) -> None:
        self._count, self._report = count, report
        self._steps: dict[int, tuple[int, int]] = {}
        self._finished = 0

    def step(self, index: int, done: int, total: int) -> None:
        self._steps[index] = (done, total)
        self._tell()

    def finish(self, index: int) -> None:
        total = self._steps.get(index, (0, 0))[1]
        self._steps[index] = (total, total)
        self._finished += 1
        self._tell()

    def _tell(self) -> None:
        done, total = (sum(numbers) for numbers in zip(*self._steps.values(), strict=True))
        in_all = round(total * self._count / len(self._steps)) or None
        self._report(done, in_all, f"{self._finished} of {self._count} tables" if self._count > 1 else "")
