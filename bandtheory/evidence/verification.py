"""Everything at once on one divergence: what was derived, the properties of its band, and the convex program.

print(verify("kl"))
verify("(u - 1)**2*(u - 3)**2").passed        # False: it says where that is not convex
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from hypothesis import configuration, settings

from bandtheory.derivation import Derivation, derive
from bandtheory.divergence import FDivergence, convexity_fault
from bandtheory.evidence import symbolic
from bandtheory.evidence.properties import PROPERTIES, Property
from bandtheory.evidence.subject import LogBounds, Subject, subject

if TYPE_CHECKING:
    from rich.table import Table

EXAMPLES = {"quick": 20, "default": 100, "deep": 3000}  # per property, times its weight
POINTS = {"quick": 20, "default": 60, "deep": 600}  # per symbolic check

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
        checks: in the order in which they ran.
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
        return "\n".join([f"{self.divergence}: f(u) = {self.generator}", *lines, *self._counterexamples(), self.summary])

    def __rich__(self) -> Table:
        from rich.table import Table
        from rich.text import Text

        caption = "\n\n".join([*self._counterexamples(), self.summary])
        table = Table(title=Text(f"{self.divergence}: f(u) = {self.generator}"), caption=Text(caption), caption_justify="left")
        for name in ("check", "theorem", "verdict", "worst", "seconds", "over"):
            table.add_column(name, justify="right" if name in ("worst", "seconds") else "left")
        for check in self.checks:
            style = {True: "green", False: "bold red", None: "yellow"}[check.passed]
            cells = _cells(check)
            table.add_row(*(Text(cell, style if k == 2 else "") for k, cell in enumerate(cells)))
        return table

    def _counterexamples(self) -> list[str]:
        return [check.counterexample for check in self.checks if check.counterexample]


def _cells(check: Check) -> tuple[str, str, str, str, str, str]:
    worst = "" if check.worst is None else f"{check.worst:.1e} {check.unit}".rstrip()
    over = "; ".join(part for part in (check.inputs, check.note) if part)
    return check.name, check.theorem, check.verdict, worst, f"{check.seconds:.2f}", over


def verify(
    divergence: str | FDivergence,
    *,
    log_bounds: LogBounds | None = None,
    effort: str = "default",
    seed: int = 0,
    progress: Progress | None = None,
) -> VerificationReport:
    """Check one divergence and its bounds against the definition, the theorems and the convex program.

    Args:
        divergence: a name, an expression in u (a faulty one is reported, not refused), or an FDivergence.
        log_bounds: bounds to be judged instead of the library's, `(logp, δ) ↦ (log_lower, log_upper)`.
        effort: "quick" (about 3 s), "default" (about 10 s) or "deep" (minutes).
        seed: the same seed gives the same examples, as long as the same modules are loaded.
        progress: called with each check when it is done.

    Raises:
        DivergenceError, ExpressionError: an unknown name, or text outside the grammar.
        ValueError: an unknown effort.
    """
    if effort not in EXAMPLES:
        raise ValueError(f"effort is {effort!r}; accepted: {', '.join(EXAMPLES)}")
    started = time.perf_counter()
    on_trial = subject(divergence, log_bounds)
    checks: list[Check] = []
    with _no_traces():
        for check in _checks(on_trial, effort, seed):
            checks.append(check)
            if progress:
                progress(check)
    f = on_trial.divergence
    return VerificationReport(f.name, str(f.generator), tuple(checks), time.perf_counter() - started, effort, seed)


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


def _checks(on_trial: Subject, effort: str, seed: int) -> Iterator[Check]:
    started = time.perf_counter()
    fault = convexity_fault(on_trial.divergence)
    over = "1,600 points u from 1e-120 to 1e120"
    if fault:
        note = "the other checks were not run: they mean nothing for this generator"
        text = f"the generator of {on_trial.divergence.name!r}: {fault}"
        seconds = time.perf_counter() - started
        yield Check("generator", "definition", over, seconds=seconds, passed=False, counterexample=text, note=note)
        return
    yield Check("generator", "definition", over, seconds=time.perf_counter() - started, note="f(1) = 0, f convex")
    yield from _symbolic_checks(on_trial.divergence, POINTS[effort], seed)
    options = settings(max_examples=EXAMPLES[effort], database=None, derandomize=False)
    for law in PROPERTIES:
        yield _property_check(law, on_trial, options, seed)


def _symbolic_checks(divergence: FDivergence, count: int, seed: int) -> Iterator[Check]:
    """The derivation; its time is that of the first of these checks."""
    started = time.perf_counter()
    derived = derive(divergence)
    kinds: tuple[tuple[str, str, Callable[[Derivation, int, int], symbolic.Finding]], ...] = (
        ("derived limits", "theorem 7", symbolic.limits),
        ("derived saturation", "theorem 6", symbolic.saturation),
        ("derived closed form", "theorem 1", symbolic.closed_forms),
    )
    for name, theorem, check in kinds:
        found = check(derived, count, seed)
        seconds, started = time.perf_counter() - started, time.perf_counter()
        if not found.tried:
            yield Check(name, theorem, seconds=seconds, passed=None, note=found.note)
            continue
        passed, over = found.offence is None, f"{found.tried} random rational points"
        yield Check(name, theorem, over, found.worst, "relative", seconds, passed, found.offence, found.note)


def _property_check(law: Property, on_trial: Subject, options: settings, seed: int) -> Check:
    started = time.perf_counter()
    reason = law.missing(on_trial)
    if reason:
        return Check(law.name, law.theorem, passed=None, note=reason, seconds=time.perf_counter() - started)
    outcome = law.search(on_trial, options, seed)
    seconds, failed = time.perf_counter() - started, outcome.counterexample is not None
    note = f"{len(outcome.unresolved)} more left undecided by the solver" if outcome.unresolved else ""
    if not outcome.tried and not failed:
        return Check(law.name, law.theorem, law.over, seconds=seconds, passed=None, note=note or "no input in range")
    over = f"{outcome.tried} examples: {law.over}"
    worst = None if failed else outcome.worst
    return Check(law.name, law.theorem, over, worst, law.unit, seconds, not failed, outcome.counterexample, note)
