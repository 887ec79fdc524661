"""Statements proved in processes of their own; results come in the given order.

Each worker is a thread with one process. A proof is stopped by its own alarm (`Statement.run`) or by z3's limit; where both
fail, in C code that answers to neither, the thread ends the process, reports the statement as open, and starts another one.
"""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout

from proofs.registry import all_statements
from proofs.statement import Outcome, Result, Statement, Status

GRACE = 20.0  # seconds beyond the limit, for the start of a process and for what a library needs to notice the time


def prove_by_name(name: str, seconds: float) -> Result:
    """Prove one statement of the registry in this process."""
    return all_statements()[name].run(seconds)


class _Worker(threading.local):
    """One process for each thread that asks."""

    def __init__(self) -> None:
        self.pool: ProcessPoolExecutor | None = None

    def run(self, statement: Statement, seconds: float, pools: list[ProcessPoolExecutor]) -> Result:
        if self.pool is None:
            self.pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
            pools.append(self.pool)
        try:
            return self.pool.submit(prove_by_name, statement.name, seconds).result(timeout=seconds + GRACE)
        except (FutureTimeout, BrokenExecutor) as error:
            reason = "its process ended" if isinstance(error, BrokenExecutor) else "its process did not answer and was ended"
            _end(self.pool)
            self.pool = None
            return statement.result(Outcome(Status.OPEN, reason), seconds)


def _end(pool: ProcessPoolExecutor) -> None:
    """End the processes of a pool at once, whatever they are doing."""
    processes = list((pool._processes or {}).values())  # there is no public way to end a process that does not answer
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.kill()


def prove_all(names: Sequence[str], seconds: float, workers: int) -> Iterator[Result]:
    """Results in the order of `names`, each as soon as it and all before it are there.

    With one worker, or one statement, everything happens in this process.
    """
    if workers == 1 or len(names) <= 1:
        for name in names:
            yield prove_by_name(name, seconds)
        return
    statements, worker = all_statements(), _Worker()
    pools: list[ProcessPoolExecutor] = []
    threads = ThreadPoolExecutor(workers)
    try:
        pending: list[Future[Result]] = [threads.submit(worker.run, statements[name], seconds, pools) for name in names]
        for future in pending:
            yield future.result()
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
        for pool in pools:
            _end(pool)
