"""Independent jobs in a few processes, with their progress shown: bars on a terminal, a line a job elsewhere."""

from __future__ import annotations

import contextlib
import multiprocessing
import queue
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from typing import Any, Protocol, TypeVar

from rich.console import Console

Progress = Callable[[int, int], None]
Result = TypeVar("Result")
Job = Callable[[Progress], Result]

_messages: Any = None  # in a worker process: the queue to the process that started it


class JobError(RuntimeError):
    """A job raised an exception, or its process died; the message names the job."""


def exit_status(command: Callable[[], int]) -> int:
    """The status of a command: 2 where it was given something wrong, 1 where a job of it broke off; the error is one line."""
    try:
        return command()
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except JobError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


class Display(Protocol):
    """Where progress goes."""

    def update(self, name: str, done: int, total: int) -> None:
        """A job has done so many of its steps."""

    def finish(self, name: str, seconds: float) -> None:
        """A job is complete."""


def run(jobs: Mapping[str, Job[Result]], workers: int, display: Display) -> dict[str, Result]:
    """Results of all jobs, by name, in the order of `jobs`, which is also the order they are started in.

    A job is called with a function `progress(done, total)`. It must be picklable, as it runs in a process of its own that is
    started afresh: torch and a forked process do not go together.

    Raises:
        JobError: some job did not finish; the others are abandoned.
    """
    context = multiprocessing.get_context("spawn")
    messages = context.Queue()
    results: dict[str, Result] = {}
    with ProcessPoolExecutor(workers, context, initializer=_initialise, initargs=(messages,)) as pool:
        pending: dict[Future[tuple[Result, float]], str] = {pool.submit(_call, name, job): name for name, job in jobs.items()}
        try:
            while pending:
                done, _ = wait(pending, timeout=0.1, return_when=FIRST_COMPLETED)
                _drain(messages, display)
                for future in done:
                    name = pending.pop(future)
                    results[name], seconds = _result(future, name)
                    display.finish(name, seconds)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return {name: results[name] for name in jobs}


def _initialise(messages: Any) -> None:
    global _messages
    _messages = messages
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # after Ctrl-C the parent speaks; a traceback a process would drown it


def _call(name: str, job: Job[Result]) -> tuple[Result, float]:
    started = time.perf_counter()
    result = job(lambda done, total: _messages.put((name, done, total)))
    return result, time.perf_counter() - started


def _result(future: Future[Any], name: str) -> Any:
    try:
        return future.result()
    except Exception as error:
        raise JobError(f"{name}: {type(error).__name__}: {error}") from error


def _drain(messages: Any, display: Display) -> None:
    latest: dict[str, tuple[int, int]] = {}
    with contextlib.suppress(queue.Empty):
        while True:
            name, done, total = messages.get_nowait()
            latest[name] = (done, total)
    for name, (done, total) in latest.items():
        display.update(name, done, total)


class _Lines:
    """Plain lines, one when a job is complete."""

    def __init__(self, count: int) -> None:
        self.count, self.finished = count, 0

    def update(self, name: str, done: int, total: int) -> None:
        """Nothing: a log has no use for it."""

    def finish(self, name: str, seconds: float) -> None:
        self.finished += 1
        print(f"[{self.finished}/{self.count}] {name}: {seconds:.1f} s", flush=True)


class _Bars:
    """One bar a job that has started."""

    def __init__(self, bars: Any) -> None:
        self.bars = bars
        self.tasks: dict[str, Any] = {}

    def update(self, name: str, done: int, total: int) -> None:
        if name not in self.tasks:
            self.tasks[name] = self.bars.add_task(name, total=total)
        if not self.bars.tasks[self.tasks[name]].finished:  # the last message of a job can come after its result
            self.bars.update(self.tasks[name], completed=done, total=total)

    def finish(self, name: str, seconds: float) -> None:
        self.update(name, 1, 1)
        self.bars.update(self.tasks[name], completed=1, total=1)


@contextlib.contextmanager
def display(count: int, console: Console) -> Iterator[Display]:
    """Bars on a terminal; elsewhere a plain line each time one of `count` jobs is complete."""
    if not console.is_terminal:
        yield _Lines(count)
        return
    from rich.progress import BarColumn, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (SpinnerColumn(finished_text="✓"), TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    with Bars(*columns, TimeElapsedColumn(), console=console) as bars:
        yield _Bars(bars)
