"""`bandtheory verify`: names, expressions and Python files on trial, in several processes, resumable."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from bandtheory.terminal import UsageError, console, print_json, progress

if TYPE_CHECKING:
    from bandtheory.evidence.kept_checks import Records
    from bandtheory.evidence.user_files import Target
    from bandtheory.evidence.verification import VerificationReport

_Flag = tyro.conf.arg(help_behavior_hint="")
_Reference = tyro.conf.arg(metavar="FILE.py:NAME", help_behavior_hint="")


@dataclass(frozen=True)
class VerifyCommand:
    """Check a band against independent methods.

    Example: bandtheory verify kl "u*log(u) - u + 1"
    """

    names: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="DIVERGENCE ...", help_behavior_hint="(or --all)")
    ] = ()
    """Catalogue names, expressions in u, or FILE.py:NAME of an FDivergence (executes the file)."""
    all: Annotated[bool, _Flag] = False
    """Verify the whole catalogue, families at two values of their parameter."""
    effort: Literal["quick", "default", "deep"] = "default"
    """How many inputs each check covers: seconds, or with deep minutes to an hour."""
    seed: int = 0
    """Of the random inputs."""
    bounds: Annotated[str | None, _Reference] = None
    """Judge this function (logp, delta) -> (log_lower, log_upper) instead of the library's bounds."""
    conic: Annotated[str | None, _Reference] = None
    """The generator as a convex cvxpy expression of ratios, for one that cannot be translated."""
    workers: Annotated[int | None, tyro.conf.arg(metavar="N", help_behavior_hint="(default: the number of cores)")] = None
    """Processes."""
    state: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="(default: with deep, in the cache)")] = None
    """Keep finished checks here; after an interruption the same command goes on from there."""
    fresh: Annotated[bool, _Flag] = False
    """Make all checks again, whatever was kept."""
    as_json: Annotated[bool, tyro.conf.arg(name="json", help_behavior_hint="")] = False
    """Print JSON and nothing else."""

    def run(self) -> int:
        targets = self._targets()
        reports = self._reports(targets)
        failed = [report for report in reports if not report.passed]
        if self.as_json:
            print_json({"passed": not failed, "reports": [report.to_dict() for report in reports]})
        elif len(reports) > 1:
            names = ", ".join(report.divergence for report in failed)
            print(f"{len(failed)} of {len(reports)} failed: {names}" if failed else f"all {len(reports)} passed")
        return 1 if failed else 0

    def _targets(self) -> list[Target]:
        """All names are looked up before the first is verified; a faulty generator is a finding, not wrong usage."""
        if bool(self.names) == self.all:
            raise UsageError("name at least one divergence to verify, or give --all (not both)")
        if self.seed < 0:
            raise UsageError(f"--seed is {self.seed}; accepted: an integer of at least 0")
        if self.workers is not None and self.workers < 1:
            raise UsageError(f"--workers is {self.workers}; accepted: an integer of at least 1")
        from bandtheory.catalogue import examples
        from bandtheory.evidence.user_files import Target

        names = examples() if self.all else tuple(name.strip() for name in self.names)
        for option, given in (("--bounds", self.bounds), ("--conic", self.conic)):
            if given is not None and len(names) != 1:
                raise UsageError(f"{option} belongs to one divergence; got {len(names)}")
        targets = [Target(name, self.bounds, self.conic) for name in names]
        for file in dict.fromkeys(file for target in targets for file in target.files if Path(file).expanduser().is_file()):
            print(f"executing {file}", file=sys.stderr)
        for target in targets:
            target.subject()
        return targets

    def _reports(self, targets: Sequence[Target]) -> list[VerificationReport]:
        """The reports, each printed as soon as it is done and those before it are."""
        from bandtheory.evidence.batch import verify_several
        from bandtheory.processor import usable_cores

        records = self._records(targets)
        reports: list[VerificationReport] = []
        meter = _Meter()
        found = verify_several(
            targets,
            effort=self.effort,
            seed=self.seed,
            workers=self.workers or usable_cores(),
            records=records,
            progress=meter.show,
        )
        try:
            with closing(found), meter:
                for report in found:
                    reports.append(report)
                    if not self.as_json:
                        with meter.paused():
                            console().print(report, crop=False)  # a line to copy is not cut
        except KeyboardInterrupt:
            if records:
                print(f"interrupted; finished checks are in {records.path}: the same command goes on", file=sys.stderr)
            raise
        return reports

    def _records(self, targets: Sequence[Target]) -> Records | None:
        """Where finished checks are kept: the file that was named, or with deep one in the user's cache."""
        if self.state is None and self.effort != "deep":
            if self.fresh:
                raise UsageError("--fresh is about kept checks: it goes with --state FILE or --effort deep")
            return None
        from bandtheory.evidence.kept_checks import Records, default_path

        try:
            records = Records(self.state or default_path(), lambda text: print(f"note: {text}", file=sys.stderr))
        except OSError:
            if self.state is not None:
                raise
            print("note: no folder for caches can be written; give --state FILE to make this resumable", file=sys.stderr)
            return None
        keys = [target.key(self.effort, self.seed) for target in targets]
        if self.fresh:
            for key in keys:
                records.forget(key)
        known = sum(len(records.checks(key)) for key in keys)
        words = f"{known} checks were made before and are not repeated (--fresh would)" if known else "finished checks are kept"
        print(f"note: {words}: {records.path}", file=sys.stderr)
        return records


class _Meter:
    """Progress on standard error, which steps aside while a report is printed."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._last: tuple[int, int, str] | None = None

    def __enter__(self) -> _Meter:
        self._say = self._stack.enter_context(progress("verifying"))
        if self._last:
            self._say(*self._last)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def show(self, done: int, total: int, note: str) -> None:
        self._last = (done, total, note)
        self._say(done, total, note)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing of the meter is on the terminal inside of this."""
        self._stack.close()
        try:
            yield
        finally:
            self.__enter__()
