"""What every command needs around it: arguments, errors in one line, JSON, tables and progress, on a terminal or in a log."""

from __future__ import annotations

import contextlib
import difflib
import io
import math
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TextIO

if TYPE_CHECKING:
    from rich.console import Console

WIDTH_IN_A_LOG = 160  # columns of a table where no terminal sets them
SECONDS_BETWEEN_LINES = 2.0  # of progress in a log; work that is faster says nothing
INTERRUPTED = 130
BROKEN_PIPE = 141  # as a shell reports a program that the signal ended
_MOST_CHARACTERS = 600  # of an error line, as a value that is quoted in it may have a million
_MINUS_EXPRESSION = re.compile(r"-(?!-)(?!h$)(?!inf$)(?!\.?\d)")


class Progress(Protocol):
    """`report(done, total, note)`; the total is None where it is not known."""

    def __call__(self, done: int, total: int | None, note: str = "") -> None: ...


class UsageError(ValueError):
    """Arguments that do not make sense together; the message says which and what is accepted."""


def read_arguments(program: str, description: str, commands: Mapping[str, type[Any]], arguments: Sequence[str]) -> Any:
    """One of `commands`, made from the command line.

    An expression may start with a minus sign (`-log(u)`), since the only option of one letter is `-h`.

    Raises:
        UsageError: an unknown command, or what tyro refuses, in one line.
        SystemExit: with code 0, after `--help`.
    """
    given = list(arguments)
    if given and not given[0].startswith("-") and given[0] not in commands:
        near = difflib.get_close_matches(given[0][:40], commands, n=1, cutoff=0.4)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise UsageError(f"unknown command {given[0]!r}{hint} Accepted: {', '.join(commands)}")
    import tyro

    end = given.index("--") if "--" in given else len(given)
    given[:end] = [" " + text if _MINUS_EXPRESSION.match(text) else text for text in given[:end]]
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.extras.subcommand_cli_from_dict(
                dict(commands),
                prog=program,
                description=description,
                args=given,
                config=(tyro.conf.FlagCreatePairsOff, tyro.conf.ConsolidateSubcommandArgs),
            )
    except SystemExit as stop:
        if not stop.code:
            raise
        raise UsageError(in_one_line(complaint.getvalue(), program)) from None


def in_one_line(box: str, program: str) -> str:
    """The sentence in the frame that tyro draws around an error, without the help texts that it repeats."""
    framed = re.sub(r"\x1b\[[0-9;]*m", "", box).splitlines()[1:-1]  # the first line is a heading, the last one empty
    sentence, see, repeated = "", program, False
    for row in (re.sub(r"^[│|]|[│|]$", "", line) for line in framed):
        text = "" if set(row) <= set(" ─-") else row.strip()  # a rule across the frame, which is ASCII in some terminals
        found = re.search(rf"{re.escape(program)}[\w -]*(?= --help)", text)
        repeated = repeated or text.startswith("Argument helptext")
        if found or "--help" in text:
            see = max(see, found[0] if found else "", key=len)
        elif text and not repeated and not text.startswith("For full helptext") and not row.startswith(" " * 7):
            sentence += (". " if text.startswith(("Perhaps", "Available")) else " ") + text
    return f"{sentence.strip(' .:') or 'the arguments cannot be read'}; see '{see} --help'"


def error_line(program: str, error: BaseException) -> str:
    """One printable line for an error, whatever its message holds."""
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    text = " ".join((text or type(error).__name__).split())
    text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    if len(text) > _MOST_CHARACTERS:
        text = f"{text[: _MOST_CHARACTERS // 2]} … {text[-_MOST_CHARACTERS // 2 :]}"
    return f"{program}: error: {text}"


def plain(value: Any) -> Any:
    """Lists, dicts, strings, booleans and numbers only; what JSON has no number for is the string "inf", "-inf" or "nan"."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):  # a numpy array or scalar
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def print_json(value: Any) -> None:
    """Print one JSON value and nothing else."""
    import json

    print(json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False))


def console(stream: TextIO | None = None) -> Console:
    """A rich console on a stream, standard output unless given; wide in a log, so that no table is cut."""
    from rich.console import Console

    class _Console(Console):
        def on_broken_pipe(self) -> None:
            """Rich would exit with 1, which here means that a check failed."""
            raise BrokenPipeError

    target = sys.stdout if stream is None else stream
    wide = not target.isatty() and "COLUMNS" not in os.environ
    return _Console(file=target, emoji=False, highlight=False, width=WIDTH_IN_A_LOG if wide else None)


@contextlib.contextmanager
def progress(what: str) -> Iterator[Progress]:
    """A reporter for long work: a bar if standard error is a terminal, else a plain line there now and then."""
    if not sys.stderr.isatty():
        last = time.monotonic()

        def say(done: int, total: int | None, note: str = "") -> None:
            nonlocal last
            if time.monotonic() - last >= SECONDS_BETWEEN_LINES:
                last = time.monotonic()
                share = f"{done:,} done" if total is None else f"{done:,} of {total:,}"
                print(f"{what}: {share}{note and ', '}{note}", file=sys.stderr, flush=True)

        yield say
        return
    from rich.markup import escape
    from rich.progress import Progress as Bar

    with Bar(console=console(sys.stderr), transient=True) as bar:
        task = bar.add_task(escape(what), total=None)

        def draw(done: int, total: int | None, note: str = "") -> None:
            bar.update(task, completed=done, total=total, description=escape(f"{what}{note and ': '}{note}"))

        yield draw


def exit_status(program: str, command: Callable[[], int]) -> int:
    """Run a command; an interrupt, a closed pipe or an error becomes a status, the error one line on standard error."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # the mathematics is in unicode, which not every terminal can show
    try:
        status = command()
        sys.stdout.flush()
        return status
    except SystemExit as stop:
        return int(stop.code or 0)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _discard_output()
        return BROKEN_PIPE
    except (ValueError, OSError, ImportError) as error:  # every error of the library is a ValueError that says what is accepted
        print(error_line(program, error), file=sys.stderr)
        return 2


def _discard_output() -> None:
    """After a broken pipe: let Python's last flush of standard output go nowhere instead of failing again."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
