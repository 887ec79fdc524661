"""Many verifications in a few processes, in order, with a memory.

    for report in verify_several(["kl", "tv", "vajda:3"], workers=2):
        print(report.summary)

The processes are started afresh (`spawn`), so a program that asks for more than one has to start from
`if __name__ == "__main__":`. They end with the loop: on an exception, an interrupt, or when the caller's process is gone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from bandtheory.divergence import FDivergence
from bandtheory.evidence.kept_checks import Records
from bandtheory.evidence.user_files import Target
from bandtheory.evidence.verification import GENERATOR, Check, VerificationReport, check_names, report, require_effort
from bandtheory.evidence.workers import Event, Job, here, in_processes

Progress = Callable[[int, int, str], None]


def verify_several(
    divergences: Sequence[str | FDivergence | Target],
    *,
    effort: str = "default",
    seed: int = 0,
    workers: int = 1,
    records: Records | None = None,
    progress: Progress | None = None,
) -> Generator[VerificationReport, None, None]:
    """`verify` on each divergence; reports come in the order of the divergences, each as soon as it and those before are done.

    Args:
        divergences: names, expressions, `file.py:name`, FDivergence objects, or targets with functions of one's own.
        effort, seed: as for `verify`. With "deep" each check is a job of its own, otherwise each divergence.
        workers: processes, at least 1; with 1 everything happens in this one.
        records: where finished checks are kept, and taken from if they were made before.
        progress: called with the numbers of finished checks and of all, and a note, after each check.

    Raises:
        ValueError: an unknown effort, or workers below 1.
        SourceError, DivergenceError, ExpressionError: before anything is verified.
        ChildProcessError: a process ended before its work did.
    """
    require_effort(effort)
    if workers < 1:
        raise ValueError(f"workers is {workers}; accepted: an integer of at least 1")
    targets = [given if isinstance(given, Target) else Target(given) for given in divergences]
    board = _Board(targets, effort, seed, records)
    return _reports(board, min(workers, max(1, board.most_jobs)), progress)


def _reports(board: _Board, workers: int, progress: Progress | None) -> Generator[VerificationReport, None, None]:
    yield from board.finished()
    if not board.jobs:
        return
    events = here(board) if workers == 1 else in_processes(board, workers)
    with closing(events):
        for event in events:
            board.hear(event)
            if progress and event.check:
                progress(board.done, board.total, f"{board.label(event.index)}: {event.check.name}")
            yield from board.finished()


@dataclass
class _State:
    """How far one divergence is."""

    target: Target
    divergence: FDivergence
    key: str
    checks: dict[str, Check]
    jobs: int = 0  # given out or waiting

    @property
    def refused(self) -> bool:
        """Whether the generator failed, so that there are no other checks."""
        return GENERATOR in self.checks and self.checks[GENERATOR].passed is False

    @property
    def missing(self) -> tuple[str, ...]:
        return () if self.refused else tuple(name for name in check_names() if name not in self.checks)


@dataclass
class _Board:
    """What is done and what is to be done."""

    targets: Sequence[Target]
    effort: str
    seed: int
    records: Records | None
    jobs: deque[Job] = field(default_factory=deque)
    states: list[_State] = field(default_factory=list)
    told: int = 0  # reports that were handed out

    def __post_init__(self) -> None:
        for index, target in enumerate(self.targets):
            key = target.key(self.effort, self.seed) if self.records else ""
            known = self.records.checks(key) if self.records else {}
            state = _State(target, target.subject().divergence, key, known)
            self.states.append(state)
            if state.missing:
                self._add(index, (GENERATOR,) if self._split and GENERATOR in state.missing else state.missing)

    @property
    def _split(self) -> bool:
        return self.effort == "deep"

    @property
    def most_jobs(self) -> int:
        """How many processes could be of use."""
        return sum(len(state.missing) if self._split else bool(state.missing) for state in self.states)

    @property
    def total(self) -> int:
        return sum(len(state.checks) + len(state.missing) for state in self.states)

    @property
    def done(self) -> int:
        return sum(len(state.checks) for state in self.states)

    def label(self, index: int) -> str:
        return self.states[index].divergence.name

    def _add(self, index: int, names: tuple[str, ...]) -> None:
        parts = [(name,) for name in names] if self._split else [names]
        self.jobs.extend(Job(index, self.states[index].target, part, self.effort, self.seed) for part in parts)
        self.states[index].jobs += len(parts)

    def hear(self, event: Event) -> None:
        """A check, or the end of a job."""
        state = self.states[event.index]
        if event.check:
            state.checks[event.check.name] = event.check
            if self.records:
                self.records.keep(state.key, event.check)
            return
        state.jobs -= 1
        if not state.jobs and state.missing:  # the generator was alone, and passed
            self._add(event.index, state.missing)

    def finished(self) -> Iterator[VerificationReport]:
        """The reports that are due."""
        while self.told < len(self.states) and not self.states[self.told].jobs:
            state = self.states[self.told]
            self.told += 1
            yield report(state.divergence, list(state.checks.values()), self.effort, self.seed)
