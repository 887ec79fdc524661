"""Finished pieces of an exhaustive run, kept in a file, and the one progress bar of all pieces together."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import multiprocessing
import os
import platform
import threading
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from benchmarks.parallel import Progress

if TYPE_CHECKING:
    from benchmarks.exhaustive_pieces import Piece, Result


@dataclass(frozen=True)
class State:
    """Lines of JSON, one for each finished piece: the piece and its result.

    Each process appends its own pieces, so whatever is killed, those that are finished stay. The name holds the version and a
    hash of the sources, and a piece is known by all that it depends on, so nothing stale is ever used.
    """

    path: Path

    @classmethod
    def beside(cls, target: Path, device: str) -> State:
        """The state of a run that will write `target` with the library as it is now."""
        kind = device.replace(":", "")
        return cls(target.with_name(f"{target.stem}.{kind}.{version('bandtheory')}.{sources()}.log"))

    @staticmethod
    def key(piece: Piece) -> str:
        """All that the result of a piece depends on, but for the sources."""
        return json.dumps(asdict(piece), sort_keys=True)

    def read(self) -> dict[str, Result]:
        """Results by key; a last line without an end, which a kill leaves behind, is cut off, and other damage passed over."""
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return {}
        whole, end, _ = content.rpartition(b"\n")
        if whole + end != content:
            os.truncate(self.path, len(whole) + len(end))
        found = {}
        for line in whole.splitlines():
            with contextlib.suppress(ValueError, KeyError, TypeError):
                entry = json.loads(line)
                found[json.dumps(entry["piece"], sort_keys=True)] = entry["result"]
        return found

    def append(self, piece: Piece, result: Result) -> None:
        """Add a piece, in one write, so that lines of several processes do not mix."""
        line = (json.dumps({"piece": asdict(piece), "result": result}) + "\n").encode()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab", buffering=0) as file:
            file.write(line)

    def measured(self, piece: Piece, progress: Progress) -> Result:
        """The result of a piece, measured now and added to the file; to be called in a process of its own."""
        from benchmarks.exhaustive_pieces import measure

        _end_with_parent()
        result = measure(piece, progress)
        self.append(piece, result)
        return result

    def remove(self) -> None:
        """Forget all pieces."""
        self.path.unlink(missing_ok=True)


def sources() -> str:
    """A hash of the library, of these benchmarks and of the versions below them."""
    import bandtheory

    digest = hashlib.sha256()
    library, here = Path(bandtheory.__file__).parent, Path(__file__).parent
    files = [(path.relative_to(library), path) for path in library.rglob("*.py")]
    files += [(path.relative_to(here), path) for path in [*here.glob("exhaustive*.py"), here / "units_in_the_last_place.py"]]
    for name, path in sorted(files):
        digest.update(f"{name.as_posix()}\n".encode() + hashlib.sha256(path.read_bytes()).digest())
    versions = [platform.python_version(), *(version(name) for name in ("numpy", "scipy", "sympy", "python-flint", "torch"))]
    digest.update("\n".join(versions).encode())
    return digest.hexdigest()[:12]


@functools.cache
def _end_with_parent() -> None:
    """End this process when the one that started it dies, even by a kill: nobody would read what it finds."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class TotalBar:
    """One bar for the floats of all pieces together."""

    def __init__(self, bars: Any, sizes: Mapping[str, int], open_pieces: Collection[str]) -> None:
        self.bars, self.sizes = bars, sizes
        self.done: dict[str, float] = {name: size for name, size in sizes.items() if name not in open_pieces}
        self.task = bars.add_task("floats", total=sum(sizes.values()), completed=sum(self.done.values()))

    @classmethod
    @contextlib.contextmanager
    def on(cls, console: Console, sizes: Mapping[str, int], open_pieces: Collection[str]) -> Iterator[TotalBar]:
        """The bar on a terminal; `open_pieces` are still to be measured."""
        from rich.progress import BarColumn, MofNCompleteColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars

        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), MofNCompleteColumn())
        with Bars(*columns, TimeRemainingColumn(), console=console) as bars:
            yield cls(bars, sizes, open_pieces)

    def update(self, name: str, done: int, total: int) -> None:
        """So many of the steps of a piece are done."""
        self._set(name, self.sizes[name] * done / total)

    def finish(self, name: str, seconds: float) -> None:
        """A piece is complete."""
        self._set(name, self.sizes[name])

    def _set(self, name: str, done: float) -> None:
        if self.done.get(name, 0.0) < done:  # the last message of a piece can come after its result
            self.done[name] = done
            self.bars.update(self.task, completed=int(sum(self.done.values())), description=name)
