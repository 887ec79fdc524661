"""``python -m proofs``. Exit status: 0 all proved, 1 something is refuted or open, 2 wrong usage, 130 interrupted."""

from __future__ import annotations

import contextlib
import io
import math
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro

from bandtheory.terminal import UsageError, console, exit_status, in_one_line, print_json, progress
from proofs.statement import Result, Status

if TYPE_CHECKING:
    from rich.text import Text

PROGRAM = "python -m proofs"
MAX_WORKERS = 64
_COLOURS = {Status.PROVED: "green", Status.REFUTED: "bold red", Status.OPEN: "bold yellow"}


@dataclass(frozen=True)
class Arguments:
    """Prove the theorems of the theory page and its closed forms, and say what each proof rests on.

    Exit status: 0 all proved, 1 something is refuted or open, 2 wrong usage.
    """

    names: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="NAME ...", help_behavior_hint="(default: all)")
    ] = ()
    """Only statements with one of these texts in their name, such as "theorem 3:" or tv."""
    seconds: float = 120.0
    """Time limit for each statement; one that runs out of time is open."""
    workers: int = 2
    """Processes; with 1 everything happens in this one."""
    show_list: Annotated[bool, tyro.conf.arg(name="list", help_behavior_hint="")] = False
    """Print the names and prove nothing."""
    as_json: Annotated[bool, tyro.conf.arg(name="json", help_behavior_hint="")] = False
    """Print JSON and nothing else: a list of objects."""
    latex: Annotated[bool, tyro.conf.arg(help_behavior_hint="")] = False
    """Print a LaTeX document with the statements, their derivations and what came of them."""

    def check(self) -> Arguments:
        """Raise what is wrong, in terms of the command line."""
        if not 0 < self.seconds < math.inf:
            raise UsageError(f"--seconds must be positive and finite, got {self.seconds:g}")
        if not 1 <= self.workers <= MAX_WORKERS:
            raise UsageError(f"--workers must be from 1 to {MAX_WORKERS}, got {self.workers}")
        if self.as_json + self.latex + self.show_list > 1:
            raise UsageError("--json, --latex and --list exclude each other")
        return self


def read(arguments: Sequence[str]) -> Arguments:
    """The command line.

    Raises:
        UsageError: what tyro refuses, in one line.
        SystemExit: with code 0, after `--help`.
    """
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(Arguments, prog=PROGRAM, args=list(arguments), config=(tyro.conf.FlagCreatePairsOff,)).check()
    except SystemExit as stop:
        if not stop.code:
            raise
        raise UsageError(in_one_line(complaint.getvalue(), PROGRAM)) from None


def run(given: Arguments) -> int:
    """Prove what is selected and print it."""
    from proofs.registry import select
    from proofs.runner import prove_all

    names = select(given.names)
    if given.show_list:
        print("\n".join(names))
        return 0
    results = prove_all(names, given.seconds, given.workers)
    if given.as_json or given.latex:
        done = list(_with_progress(results, len(names)))
        if given.as_json:
            print_json([result.to_dict() for result in done])
        else:
            from proofs.document import document

            print(document(done), end="")
    else:
        done = _print_as_they_come(results)
    return 0 if all(result.status == Status.PROVED for result in done) else 1


def _with_progress(results: Iterator[Result], total: int) -> Iterator[Result]:
    with progress("proving") as report:
        for number, result in enumerate(results, 1):
            report(number, total, result.name)
            yield result


def _print_as_they_come(results: Iterator[Result]) -> list[Result]:
    out, started, done = console(), time.perf_counter(), []
    for result in results:
        out.print(block(result), soft_wrap=not out.is_terminal)
        done.append(result)
    count = {status: [result for result in done if result.status == status] for status in Status}
    for status in (Status.REFUTED, Status.OPEN):
        for result in count[status]:
            out.print(f"{status}: {result.name}", style=_COLOURS[status], markup=False)
    shares = ", ".join(f"{len(members)} {status}" for status, members in count.items())
    out.print(f"{len(done)} statements: {shares}; {time.perf_counter() - started:.1f} s", markup=False)
    return done


def block(result: Result) -> Text:
    """A result in a few lines: the status and the name, the statement, the method, and what it rests on."""
    from rich.text import Text

    lines = [
        Text.assemble(
            (f"{result.status:<8}", _COLOURS[result.status]), " ", (result.name, "bold"), f"  {result.seconds:.2f} s"
        ),
        Text(f"         {result.statement}"),
        Text(f"         {result.method}; rests on: {'; '.join(result.rests_on)}", "dim"),
    ]
    if result.status != Status.PROVED:
        lines.append(Text(f"         {result.detail}", _COLOURS[result.status]))
    return Text("\n").join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status; an error is one line on standard error."""
    return exit_status(PROGRAM, lambda: run(read(sys.argv[1:] if arguments is None else arguments)))


if __name__ == "__main__":
    sys.exit(main())
