"""Jobs of a verification, done here or by a few processes of one's own.

A process reads jobs from a pipe and writes an event for each check and one at the end of the job. It ignores Ctrl-C, which a
terminal sends to all: the process that started it decides. It ends when told to, or when that process is gone.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any, Protocol

from bandtheory.evidence.user_files import Target
from bandtheory.evidence.verification import Check, checks_of

_SECONDS_TO_END = 5.0
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")  # a process a core is enough


@dataclass(frozen=True)
class Job:
    """Some checks of one divergence; `index` is its place in the order."""

    index: int
    target: Target
    names: tuple[str, ...]
    effort: str
    seed: int

    def run(self) -> Iterator[Check]:
        """The checks; fewer than asked for if the generator fails."""
        return checks_of(self.target.subject(), self.effort, self.seed, self.names)


@dataclass(frozen=True)
class Event:
    """A finished check, or with None the end of a job."""

    index: int
    check: Check | None = None
    error: BaseException | None = None
    trace: str = ""


class Work(Protocol):
    """Where jobs come from: more may be added while others run."""

    jobs: deque[Job]


class _Remote(Exception):
    """The traceback of another process, shown as the cause of its exception."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def here(work: Work) -> Generator[Event, None, None]:
    """All jobs, one after the other, in this process."""
    while work.jobs:
        job = work.jobs.popleft()
        for check in job.run():
            yield Event(job.index, check)
        yield Event(job.index)


def in_processes(work: Work, workers: int) -> Generator[Event, None, None]:
    """All jobs, in up to `workers` processes, which end with this iterator.

    Raises:
        ChildProcessError: a process ended before its job did.
        Exception: whatever a check raised there.
    """
    crew: dict[Any, tuple[BaseProcess, Job | None]] = {}  # by our end of the pipe
    context = multiprocessing.get_context("spawn")
    try:
        with _one_thread_each():
            for _ in range(workers):
                ours, theirs = context.Pipe()
                started = context.Process(target=_serve, args=(theirs,), daemon=True)
                started.start()
                theirs.close()
                crew[ours] = (started, None)
        while True:
            for connection, (process, job) in crew.items():
                if job is None and work.jobs:
                    crew[connection] = (process, work.jobs.popleft())
                    with contextlib.suppress(OSError):  # a process that is gone is noticed below
                        connection.send(crew[connection][1])
            busy = [connection for connection, (_, job) in crew.items() if job is not None]
            if not busy:
                return
            for connection in wait(busy):
                process, job = crew[connection]
                assert job is not None
                event = _heard(connection, process, job)
                if event.check is None:
                    crew[connection] = (process, None)
                yield event
    finally:
        _end([process for process, _ in crew.values()])


def _heard(connection: Any, process: BaseProcess, job: Job) -> Event:
    try:
        event: Event = connection.recv()
    except (EOFError, OSError):
        process.join(_SECONDS_TO_END)
        what = f"{job.target.divergence} ({', '.join(job.names[:2])}{', …' if len(job.names) > 2 else ''})"
        raise ChildProcessError(f"the process that verified {what} ended with exit code {process.exitcode}") from None
    if event.error is not None:
        raise event.error from _Remote(event.trace)
    return event


def _end(processes: list[BaseProcess]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        process.join(_SECONDS_TO_END)
        if process.is_alive():
            process.kill()


@contextlib.contextmanager
def _one_thread_each() -> Iterator[None]:
    """Numerical libraries read their number of threads when they are loaded, from the environment."""
    added = [name for name in _ONE_THREAD if name not in os.environ]
    os.environ.update(dict.fromkeys(added, "1"))
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


def _serve(connection: Any) -> None:
    """The life of a process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # removes what is temporary, unlike the default
    threading.Thread(target=_outlive_nobody, daemon=True).start()
    with contextlib.suppress(EOFError, OSError):
        while True:
            job: Job = connection.recv()
            for event in _events(job):
                connection.send(event)


def _events(job: Job) -> Iterator[Event]:
    try:
        for check in job.run():
            yield Event(job.index, check)
    except Exception as error:
        yield Event(job.index, error=_portable(error), trace=traceback.format_exc())
        return
    yield Event(job.index)


def _portable(error: Exception) -> Exception:
    """The exception if it can be sent, else its words."""
    import pickle

    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def _outlive_nobody() -> None:
    """Ends this process when the one that started it is gone, even in the middle of a check."""
    parent: Any = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
