"""`bandtheory table`: certified lookup tables as files, in several processes, and their certificates checked again."""

from __future__ import annotations

import errno
import math
import os
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from bandtheory.terminal import UsageError, console, print_json, progress

if TYPE_CHECKING:
    from bandtheory.table_batch import AnyRequest, Outcome, Task
    from bandtheory.table_files import Table

CATALOGUE = "catalogue"
ROOM = 2**20  # bytes that must fit into the folder: more than a table has
SHOWN_FAULTS = 10  # of a file
_FORMS = {"knots": ",", "certified_error": ".3g", "seconds": ".1f"}
_Flag = tyro.conf.arg(help_behavior_hint="")


@dataclass(frozen=True)
class TableCommand:
    """Lookup tables of the bounds, with an error that is proved for every row.

    Example: bandtheory table kl tv --delta 0.01 0.05 --out tables
    """

    names: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="DIVERGENCE ...", help_behavior_hint="(or --all)")
    ] = ()
    """Catalogue names, expressions in u, or the word catalogue: all of them."""
    all: Annotated[bool, _Flag] = False
    """The whole catalogue, families at two values of their parameter."""
    delta: Annotated[tuple[float, ...], tyro.conf.arg(metavar="DELTA ...")] = (0.05,)
    """Radii in nats, each above 0: a table for every divergence and radius."""
    delta_range: Annotated[
        tuple[float, float] | None, tyro.conf.arg(metavar="MIN MAX", help_behavior_hint="(in place of --delta)")
    ] = None
    """One table of all radii between two, for runs that change the radius; safetensors and npz only."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR", help_behavior_hint="(required, but for --check)")] = None
    """Folder for the files. A table that is in it already is read, checked against its hash, and not built again."""
    format: Annotated[tuple[Literal["safetensors", "npz", "csv", "h"], ...], tyro.conf.arg(metavar="FORMAT ...")] = (
        "safetensors",
    )
    """One or more of safetensors, npz, csv (for people) and h (for C, C++ and CUDA)."""
    max_error: Annotated[
        float | None, tyro.conf.arg(metavar="FLOAT", help_behavior_hint="(default: 1e-6, with --delta-range 1e-4)")
    ] = None
    """Largest error of both log-bounds, nats."""
    logp_min: float = -104.0
    """Log-probability at which the tables end, nats; below it the bounds stay what they are there."""
    dtype: Literal["float32", "float64"] = "float32"
    """Of the coefficients; float64 for errors below 1e-7."""
    inside: Annotated[bool, _Flag] = False
    """Never leave the trust region: the whole error is on the side of ratio 1."""
    check: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="FILE ...", help_behavior_hint="")] = ()
    """Build nothing: prove every row of these safetensors or npz files again, from the file alone."""
    workers: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="(default: the number of cores)")] = None
    """Processes."""
    as_json: Annotated[bool, tyro.conf.arg(name="json", help_behavior_hint="")] = False
    """Print JSON and nothing else."""

    def run(self) -> int:
        if self.workers is not None and self.workers < 1:
            raise UsageError(f"--workers is {self.workers}; accepted: an integer of at least 1")
        if self.check:
            return self._check()
        requests = self._requests()
        assert self.out is not None
        prepare_folder(self.out)
        rows = self._build(requests, self.out)
        failed = [row for row in rows if row["state"] == "failed"]
        if self.as_json:
            print_json({"folder": str(self.out), "failed": len(failed), "tables": rows})
        else:
            _print_rows(f"tables in {self.out}", rows)
        return 1 if failed else 0

    def _requests(self) -> list[AnyRequest]:
        """Every table that is asked for, once; all arguments are looked at before the first is built."""
        if bool(self.names) == self.all:
            raise UsageError("name at least one divergence to tabulate, or give --all (not both); --check FILE builds nothing")
        if self.out is None:
            raise UsageError("--out is missing; accepted: a folder for the files")
        for option, values in (("--delta", self.delta), ("--format", self.format)):
            if not values:
                raise UsageError(f"{option} has no value; accepted: at least one")
        from bandtheory.catalogue import examples
        from bandtheory.divergence import divergence
        from bandtheory.table_batch import RadiusRequest, Request

        self._refuse_numbers()
        given = [CATALOGUE] if self.all else [name.strip() for name in self.names]
        names = [name for text in given for name in (examples() if text == CATALOGUE else (text,))]
        specs = dict.fromkeys(divergence(name).spec for name in names)
        if self.delta_range is not None:
            return [RadiusRequest(spec, *self.delta_range, self.logp_min, self._max_error, self.inside) for spec in specs]
        settings = (self.logp_min, self._max_error, self.dtype, self.inside)
        return [Request(spec, delta, *settings) for spec in specs for delta in dict.fromkeys(self.delta)]

    @property
    def _max_error(self) -> float:
        default = 1e-6 if self.delta_range is None else 1e-4
        return default if self.max_error is None else self.max_error

    def _refuse_numbers(self) -> None:
        from bandtheory import radius_table
        from bandtheory.tables import DEEPEST, LEAST_ERROR, MOST_ERROR, SHALLOWEST

        least, what = LEAST_ERROR[self.dtype], f"with {self.dtype}"
        checks: list[tuple[str, object, bool, str]]
        checks = [("--delta", delta, 0 < delta < math.inf, "finite radii above 0 (nats)") for delta in self.delta]
        if self.delta_range is not None:
            least, what = radius_table.LEAST_ERROR, "with --delta-range"
            low, high = self.delta_range
            good = 0 < low < high <= low * radius_table.WIDEST
            accepted = f"two radii above 0 in order, the second at most {radius_table.WIDEST:g} times the first (nats)"
            checks = [("--delta-range", f"{low!r} {high!r}", good, accepted)]
            formats = [name for name in self.format if name not in ("safetensors", "npz")]
            checks += [("--format", name, False, "safetensors, npz with --delta-range") for name in formats]
            checks += [("--dtype", self.dtype, self.dtype == "float32", "nothing but the default with --delta-range")]
        checks += [
            ("--max-error", self._max_error, least <= self._max_error <= MOST_ERROR, f"{least:g} to {MOST_ERROR:g} {what}"),
            ("--logp-min", self.logp_min, DEEPEST <= self.logp_min <= SHALLOWEST, f"{DEEPEST:g} to {SHALLOWEST:g} (nats)"),
        ]
        for option, value, good, accepted in checks:
            if not good:
                raise UsageError(f"{option} is {value}; accepted: {accepted}")

    def _build(self, requests: Sequence[AnyRequest], folder: Path) -> list[dict[str, Any]]:
        """A row for each file, in the order of the requests; files are written by this process alone."""
        from bandtheory.table_batch import Task, kept

        rows: dict[AnyRequest, list[dict[str, Any]]] = {}
        with _told_on_leaving(rows, len(requests), folder):
            for request in requests:
                tables = kept(request, folder, lambda text: print(f"note: {text}", file=sys.stderr))
                if tables:
                    rows[request] = self._written(request, folder, next(iter(tables.values())), tables)
            missing = [request for request in requests if request not in rows]
            with self._performed("proving tables", [Task(request.label, request.build) for request in missing]) as outcomes:
                for outcome in outcomes:
                    request, seconds = missing[outcome.index], outcome.seconds
                    if outcome.error is None:
                        rows[request] = self._written(request, folder, outcome.value, {}, seconds)
                    else:
                        failed = partial(_row, of=request, seconds=seconds, state="failed", error=outcome.error)
                        rows[request] = [failed(folder / f"{request.stem}{suffix}") for suffix in self._suffixes]
        return [row for request in requests for row in rows[request]]

    @property
    def _suffixes(self) -> list[str]:
        return [f".{name}" for name in dict.fromkeys(self.format)]

    def _written(
        self, request: AnyRequest, folder: Path, table: Table, there: Collection[str], seconds: float | None = None
    ) -> list[dict[str, Any]]:
        """The rows of a table, after those of its files are written that are not there."""
        rows = []
        for suffix in self._suffixes:
            path = folder / f"{request.stem}{suffix}"
            if suffix not in there:
                table.save(path)
            state = "reused" if suffix in there else "converted" if there else "built"
            rows.append(_row(path, table, seconds, state=state, error=None))
        return rows

    def _check(self) -> int:
        """Certify files again; exit status 1 if a proof fails or a file is damaged."""
        if self.names or self.all or self.out is not None:
            raise UsageError("--check FILE builds nothing: it excludes DIVERGENCE, --all and --out")
        from bandtheory.table_batch import READABLE, Task, certified_again

        paths = tuple(dict.fromkeys(self.check))
        for path in paths:
            if path.suffix not in READABLE:
                raise UsageError(f"--check {str(path)!r} has the suffix {path.suffix!r}; accepted: {', '.join(READABLE)}")
            if not path.is_file():
                raise UsageError(f"--check {str(path)!r}: no such file")
        tasks = [Task(str(path), partial(certified_again, path)) for path in paths]
        rows: dict[int, dict[str, Any]] = {}
        with self._performed("proving tables again", tasks) as outcomes:
            for outcome in outcomes:
                table, faults = outcome.value or (None, [outcome.error])
                rows[outcome.index] = _row(paths[outcome.index], table, outcome.seconds, passed=not faults, faults=faults)
        found = [rows[index] for index in range(len(paths))]
        failed = [row for row in found if not row["passed"]]
        if self.as_json:
            print_json({"passed": not failed, "files": found})
        else:
            _print_rows("certified again from the files alone", found)
            print(f"{len(failed)} of {len(found)} failed" if failed else f"all {len(found)} passed")
        return 1 if failed else 0

    @contextmanager
    def _performed(self, what: str, tasks: Sequence[Task]) -> Iterator[Iterator[Outcome]]:
        """The outcomes, while a bar shows how far it is; neither it nor the processes outlive this."""
        from bandtheory.processor import usable_cores
        from bandtheory.table_batch import perform

        if not tasks:
            yield iter(())
            return
        with progress(what) as report, closing(perform(tasks, self.workers or usable_cores(), report)) as outcomes:
            yield outcomes


def prepare_folder(folder: Path) -> None:
    """Make a folder if there is none, and learn by writing a mebibyte to a nameless file that there is permission and room.

    Raises:
        OSError: there is not; names the folder.
    """
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, "--out is a file; accepted: a folder", str(folder))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as trial:
            trial.write(bytes(ROOM))
            trial.flush()
            os.fsync(trial.fileno())
    except OSError as error:
        raise type(error)(
            error.errno, f"--out: {error.strerror}; accepted: a folder to write in, with room for 1 MiB", str(folder)
        ) from None


@contextmanager
def _told_on_leaving(rows: Mapping[AnyRequest, Sequence[dict[str, Any]]], count: int, folder: Path) -> Iterator[None]:
    """After an interrupt, or where the disk is full: what is finished."""
    try:
        yield
    except (KeyboardInterrupt, OSError) as error:
        cause = "interrupted" if isinstance(error, KeyboardInterrupt) else "stopped"
        finished = sum(row[0]["state"] != "failed" for row in rows.values())
        print(f"{cause}; {finished} of {count} tables are finished in {folder}: the same command goes on", file=sys.stderr)
        raise


def _row(path: Path, of: Table | AnyRequest | None, seconds: float | None, **more: Any) -> dict[str, Any]:
    """What is printed of a file; a request has neither knots nor errors, and a damaged file nothing."""
    from bandtheory.radius_table import RadiusTable
    from bandtheory.table_batch import RadiusRequest
    from bandtheory.tables import BandTable

    table = of if isinstance(of, BandTable | RadiusTable) else None
    radii = isinstance(of, RadiusTable | RadiusRequest)
    return {
        "file": str(path),
        "divergence": of and of.divergence,
        "delta": [of.delta_min, of.delta_max] if radii else of and of.delta,  # type: ignore[union-attr]
        "knots": table and table.size,
        "certified_error": table and table.certified_error,
        "seconds": seconds,
        **more,
    }


def _print_rows(title: str, rows: Sequence[dict[str, Any]]) -> None:
    """A table of files, and under it what failed."""
    from rich.table import Table
    from rich.text import Text

    shown = Table(title=Text(title, style="table.title"), title_justify="left")
    shown.add_column("file", overflow="fold")
    for heading in ("knots", "certified error", "seconds", ""):
        shown.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    for row in rows:
        state = row.get("state") or ("passed" if row["passed"] else "failed")
        cells = (f"{row[key]:{form}}" if row[key] is not None else "" for key, form in _FORMS.items())
        shown.add_row(*map(Text, (Path(row["file"]).name, *cells, state)))
    console().print(shown)
    for row in rows:
        faults = [row["error"]] if row.get("error") else row.get("faults", [])
        for fault in faults[:SHOWN_FAULTS]:
            print(f"{row['file']}: {fault.removeprefix(row['file'] + ': ')}")
        if len(faults) > SHOWN_FAULTS:
            print(f"{row['file']}: and {len(faults) - SHOWN_FAULTS} more (--json has all)")
