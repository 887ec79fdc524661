"""``python -m trainer compare …``. Exit status: 0 done, 2 wrong usage."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import tyro

from trainer.config import CompareConfig, ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from trainer.compare import Progress

COMMANDS: dict[str, Callable[..., CompareConfig]] = {"compare": CompareConfig}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; tyro itself exits with 2 on arguments it cannot read."""
    given = tyro.extras.subcommand_cli_from_dict(COMMANDS, prog="python -m trainer", args=arguments)
    try:
        return run_compare(given)
    except (ConfigError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def run_compare(given: CompareConfig) -> int:
    """Compare, save, and print the table and the findings."""
    from rich.console import Console

    from trainer.files import check_writable

    config = given.resolved()
    assert config.out is not None
    check_writable(config.out)
    from trainer.compare import compare  # torch takes a second to import, which a wrong argument need not wait for
    from trainer.summary import table

    console = Console(emoji=False) if sys.stdout.isatty() else Console(emoji=False, width=200)  # do not cut a table in a log
    with progress_on(console) as progress:
        comparison = compare(config, progress)
    paths = comparison.save(config.out)
    console.print(table(comparison, console.width))
    for sentence in comparison.sentences:
        console.print(sentence, markup=False, highlight=False)
    console.print(f"{comparison.seconds:.1f} s; wrote {', '.join(map(str, paths))}", markup=False, highlight=False)
    return 0


@contextmanager
def progress_on(console: Console) -> Iterator[Progress]:
    """A progress bar on a terminal; elsewhere a plain line every tenth of the way."""
    if not console.is_terminal:

        def say(done: int, total: int) -> None:
            if done * 10 // total > (done - 1) * 10 // total:
                print(f"step {done} of {total}", flush=True)

        yield say
        return
    from rich.progress import Progress as Bar

    with Bar(console=console, transient=True) as bar:
        task = bar.add_task("training")
        yield lambda done, total: bar.update(task, completed=done, total=total)


if __name__ == "__main__":
    sys.exit(main())
