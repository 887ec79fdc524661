"""Everything at once on one divergence: what was derived, the properties of its band, and the convex program.

    print(verify("kl"))
    verify("(u - 1)**2*(u - 3)**2").passed        # False: it says where that is not convex

No check depends on another, so checks can be made in any order, in several processes, and one by one after an interruption
(`several`). The seed fixes the inputs but for a few in a hundred, which hypothesis takes from the literals of loaded modules.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from hypothesis import configuration, settings

from bandtheory.convexity import convexity_fault
from bandtheory.derivation import Derivation, derive
from bandtheory.divergence import FDivergence
from bandtheory.evidence import symbolic
from bandtheory.evidence.properties import PROPERTIES, Property
from bandtheory.evidence.subject import LogBounds, Subject, subject
from bandtheory.evidence.wording import divergence_in_python, screen

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from bandtheory.evidence.conic import Conic

EXAMPLES = {"quick": 20, "default": 100, "deep": 6000}  # per property, times its weight
POINTS = {"quick": 20, "default": 60, "deep": 600}  # per symbolic check
WIDE = 120  # columns of a terminal from which the inputs of a check are shown in the table
GENERATOR = "generator"  # the check without which the others mean nothing
SYMBOLIC: dict[str, tuple[str, Callable[[Derivation, int, int], symbolic.Finding]]] = {
    "derived limits": ("theorem 7", symbolic.limits),
    "derived saturation": ("theorem 6", symbolic.saturation),
    "derived closed form": ("theorem 1", symbolic.closed_forms),
}

Progress = Callable[["Check"], None]


@dataclass(frozen=True)
class Check:
    """One line of a report.

    Attributes:
        name, theorem: what was checked.
        inputs: over what, and how many.
        worst: the largest deviation met, in `unit`; None if nothing is measured.
        seconds: wall time.
        passed: None if the check does not apply or is not available; the note says why.
        counterexample: one screen of text, or None.
        note: what a reader should know besides.
    """

    name: str
    theorem: str
    inputs: str = ""
    worst: float | None = None
    unit: str = ""
    seconds: float = 0.0
    passed: bool | None = True
    counterexample: str | None = None
    note: str = ""

    @property
    def verdict(self) -> str:
        """One word; n/a is what does not apply or is not available."""
        return {True: "passed", False: "FAILED", None: "n/a"}[self.passed]


@dataclass(frozen=True)
class VerificationReport:
    """What `verify` found.

    Attributes:
        divergence: name or expression.
        generator: f(u) as text.
        checks: in the order of `check_names`.
        seconds: wall time of all.
        effort, seed: as given to `verify`.
    """

    divergence: str
    generator: str
    checks: tuple[Check, ...]
    seconds: float
    effort: str
    seed: int

    @property
    def passed(self) -> bool:
        """Whether no check failed. One that is not available is no failure; `unavailable` lists them."""
        return all(check.passed is not False for check in self.checks)

    @property
    def unavailable(self) -> tuple[Check, ...]:
        """The checks that could not be made."""
        return tuple(check for check in self.checks if check.passed is None)

    @property
    def counterexamples(self) -> tuple[str, ...]:
        """One screen of text for each check that failed."""
        return tuple(check.counterexample for check in self.checks if check.counterexample)

    @property
    def summary(self) -> str:
        """One line of verdict."""
        counts = [sum(check.passed is value for check in self.checks) for value in (True, False, None)]
        verdict = "verified" if self.passed else "NOT verified"
        return (
            f"{self.divergence}: {verdict}; {counts[0]} checks passed, {counts[1]} failed, {counts[2]} n/a, "
            f"{self.seconds:.1f} s"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**asdict(self), "passed": self.passed}

    def __str__(self) -> str:
        rows = [("check", "theorem", "verdict", "worst", "seconds", "over"), *map(_cells, self.checks)]
        widths = [max(len(row[k]) for row in rows) for k in range(5)]
        lines = ["  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[5]]) for row in rows]
        return "\n".join([f"{self.divergence}: f(u) = {self.generator}", *lines, *self.counterexamples, self.summary])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.table import Table
        from rich.text import Text

        table = Table(title=Text(f"{self.divergence}: f(u) = {self.generator}"))
        for name in ("check", "theorem", "verdict", "worst", "seconds", "over")[: 6 if options.max_width >= WIDE else 5]:
            table.add_column(name, justify="right" if name in ("worst", "seconds") else "left")
        for check in self.checks:
            style = {True: "green", False: "bold red", None: "yellow"}[check.passed]
            cells = _cells(check)
            if len(table.columns) == 5:  # the unit and the inputs are for those who have the room
                cells = (*cells[:3], cells[3].partition(" ")[0], *cells[4:])
            texts = [Text(cell, style=style if k == 2 else "") for k, cell in enumerate(cells)]
            table.add_row(*texts[: len(table.columns)])
        yield table
        # not in the table, whose frame would break the line that reproduces a failure
        yield from (Text(text + "\n", no_wrap=True, overflow="ignore") for text in self.counterexamples)
        yield Text(self.summary)


def _cells(check: Check) -> tuple[str, str, str, str, str, str]:
    worst = "" if check.worst is None else f"{check.worst:.1e} {check.unit}".rstrip()
    over = "; ".join(part for part in (check.inputs, check.note) if part)
    return check.name, check.theorem, check.verdict, worst, f"{check.seconds:.2f}", over


def verify(
    divergence: str | FDivergence,
    *,
    log_bounds: LogBounds | None = None,
    conic: Conic | None = None,
    effort: str = "default",
    seed: int = 0,
    progress: Progress | None = None,
) -> VerificationReport:
    """Check one divergence and its bounds against the definition, the theorems, the convex program and its Fenchel dual.

    Args:
        divergence: a name, an expression in u (a faulty one is reported, not refused), or an FDivergence.
        log_bounds: bounds to be judged instead of the library's, `(logp, δ) ↦ (log_lower, log_upper)`.
        conic: the generator as a convex cvxpy expression of the ratios, for one that cannot be translated; without it the
            convex program is not available, and the Fenchel certificates, more of them then, stand in for it.
        effort: "quick" (about 2 s), "default" (about 5 s) or "deep" (minutes).
        seed: the same seed gives the same examples, as long as the same modules are loaded.
        progress: called with each check when it is done.

    Raises:
        DivergenceError, ExpressionError: an unknown name, or text outside the grammar.
        ValueError: an unknown effort.
    """
    require_effort(effort)
    started = time.perf_counter()
    on_trial = subject(divergence, log_bounds, conic=conic)
    checks = []
    for check in checks_of(on_trial, effort, seed):
        checks.append(check)
        if progress:
            progress(check)
    return report(on_trial.divergence, checks, effort, seed, time.perf_counter() - started)


def report(
    f: FDivergence, checks: Collection[Check], effort: str, seed: int, seconds: float | None = None
) -> VerificationReport:
    """The report that some checks of a divergence make, in the order of `check_names`; by default their own seconds add up."""
    ordered = tuple(sorted(checks, key=lambda check: check_names().index(check.name)))
    total = sum(check.seconds for check in checks) if seconds is None else seconds
    return VerificationReport(f.name, str(f.generator), ordered, total, effort, seed)


def require_effort(effort: str) -> None:
    """Raise a ValueError for an effort that there is not."""
    if effort not in EXAMPLES:
        raise ValueError(f"effort is {effort!r}; accepted: {', '.join(EXAMPLES)}")


def check_names() -> tuple[str, ...]:
    """The names of all checks, in the order in which they are made."""
    return (GENERATOR, *SYMBOLIC, *(law.name for law in PROPERTIES))


def checks_of(on_trial: Subject, effort: str, seed: int, names: Collection[str] | None = None) -> Iterator[Check]:
    """The checks of a subject, by default all, as they are done; if the generator fails there are no others."""
    with _no_traces():
        for name in check_names():
            if names is None or name in names:
                check = _check(on_trial, name, effort, seed)
                yield check
                if name == GENERATOR and check.passed is False:
                    return


@contextlib.contextmanager
def _no_traces() -> Iterator[None]:
    """hypothesis caches what it learns about loaded modules in a folder of the working directory; here, in a passing one."""
    before = vars(configuration).get("__hypothesis_home_directory")
    with tempfile.TemporaryDirectory() as folder:
        configuration.set_hypothesis_home_dir(folder)
        try:
            yield
        finally:
            configuration.set_hypothesis_home_dir(before)


def _check(on_trial: Subject, name: str, effort: str, seed: int) -> Check:
    if name == GENERATOR:
        return _generator_check(on_trial)
    if name in SYMBOLIC:
        return _symbolic_check(on_trial, name, POINTS[effort], seed)
    law = next(law for law in PROPERTIES if law.name == name)
    return _property_check(law, on_trial, settings(max_examples=EXAMPLES[effort], database=None, derandomize=False), seed)


def _generator_check(on_trial: Subject) -> Check:
    started = time.perf_counter()
    f, over = on_trial.divergence, "1,600 points u from 1e-120 to 1e120"
    fault = convexity_fault(f)
    seconds = time.perf_counter() - started
    if not fault:
        return Check(GENERATOR, "definition", over, seconds=seconds, note="f(1) = 0, f convex")
    setup, spec = divergence_in_python(f)
    call = f"print(bt.divergence({spec}))" if spec.startswith('"') or len(setup) == 1 else f"{spec}.check()"
    heading = f"definition: f is a finite convex function on (0, ∞) with f(1) = 0; {f.name!r} is not"
    rows = [("divergence", f"f(u) = {f.generator}"), ("got", fault)]
    text = screen(heading, rows, ("import bandtheory as bt", *setup, call))
    note = "the other checks were not run: they mean nothing for this generator"
    return Check(GENERATOR, "definition", over, seconds=seconds, passed=False, counterexample=text, note=note)


def _symbolic_check(on_trial: Subject, name: str, count: int, seed: int) -> Check:
    """What was derived; the time of the first of these checks is mostly that of the derivation."""
    started = time.perf_counter()
    theorem, finding = SYMBOLIC[name]
    try:
        derived = derive(on_trial.divergence)
    except Exception as error:  # the derivation is on trial
        text = symbolic.failure(on_trial.divergence, error)
        return Check(name, theorem, seconds=time.perf_counter() - started, passed=False, counterexample=text)
    found = finding(derived, count, seed)
    seconds = time.perf_counter() - started
    if not found.tried:
        return Check(name, theorem, seconds=seconds, passed=None, note=found.note)
    passed, over = found.offence is None, f"{found.tried} random rational points"
    return Check(name, theorem, over, found.worst, "relative", seconds, passed, found.offence, found.note)


def _property_check(law: Property, on_trial: Subject, options: settings, seed: int) -> Check:
    started = time.perf_counter()
    reason = law.missing(on_trial)
    if reason:
        return Check(law.name, law.theorem, passed=None, note=reason, seconds=time.perf_counter() - started)
    outcome = law.search(on_trial, options, seed)
    seconds, failed = time.perf_counter() - started, outcome.counterexample is not None
    note = f"{len(outcome.unresolved)} more left undecided" if outcome.unresolved else ""
    if not outcome.tried and not failed:
        return Check(law.name, law.theorem, law.over, seconds=seconds, passed=None, note=note or "no input in range")
    over = f"{outcome.tried} examples: {law.over}"
    worst = None if failed else outcome.worst
    return Check(law.name, law.theorem, over, worst, law.unit, seconds, not failed, outcome.counterexample, note)
