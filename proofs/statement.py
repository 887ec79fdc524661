"""A statement of the theory, how it is proved, and what comes of it."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

_OWN_SHARE = 0.9  # of the limit: a proof that minds its time ends by itself, before the alarm interrupts some library
_AGAIN = 0.2  # seconds after which the alarm rings again, should the first one have been swallowed in a callback


class Method(StrEnum):
    """How a statement is decided, in order of preference."""

    SYMBOLIC = "symbolic"
    DECISION = "decision procedure"
    BALL = "ball arithmetic"
    LIMIT = "limit"


class Status(StrEnum):
    """What a proof came to: `OPEN` is what ran out of time or means, and never counts as proved."""

    PROVED = "proved"
    REFUTED = "refuted"
    OPEN = "open"


@dataclass(frozen=True)
class Outcome:
    """A status, and one line of detail: the steps of a proof, a counter-example, or the reason why it is open."""

    status: Status
    detail: str = ""


@dataclass(frozen=True)
class Statement:
    """One thing to prove.

    `run` stops a proof in Python when its time is up, in the main thread of a process; z3 is given the same limit.

    Attributes:
        name: short and unique, such as "theorem 3" or "le_cam closed form".
        statement: one or two lines in unicode, with its quantifiers.
        latex: the same for a document, without the surrounding dollar signs' environment: text with `$…$`.
        method: how it is decided.
        rests_on: what is assumed or trusted beyond the proof's own steps, such as "f convex and twice differentiable" or
            "z3 (nonlinear real arithmetic)".
        prove: decides it within about the given number of seconds; a false statement must never come out as proved.
        derivation: LaTeX of the steps, for `--latex`; may be empty.
    """

    name: str
    statement: str
    latex: str
    method: Method
    rests_on: tuple[str, ...]
    prove: Callable[[float], Outcome]
    derivation: str = ""

    def run(self, seconds: float) -> Result:
        """Prove it; whatever the proof raises leaves it open, and so does the end of its time."""
        started = time.perf_counter()
        try:
            with _alarm(seconds):
                outcome = self.prove(_OWN_SHARE * seconds)
        except _TimeIsUp:
            outcome = Outcome(Status.OPEN, f"not decided within {seconds:g} s")
        except Exception as error:  # a proof that breaks down proves nothing, and must not hide the others
            outcome = Outcome(Status.OPEN, f"{type(error).__name__}: {error}")
        return self.result(outcome, time.perf_counter() - started)

    def result(self, outcome: Outcome, seconds: float) -> Result:
        """What came of it."""
        return Result(
            self.name,
            self.statement,
            self.method,
            self.rests_on,
            outcome.status,
            seconds,
            outcome.detail,
            self.latex,
            self.derivation,
        )


@dataclass(frozen=True)
class Result:
    """A statement with what came of it; fields as in `Statement` and `Outcome`."""

    name: str
    statement: str
    method: Method
    rests_on: tuple[str, ...]
    status: Status
    seconds: float
    detail: str = ""
    latex: str = ""
    derivation: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON: all but the LaTeX."""
        return {
            "name": self.name,
            "statement": self.statement,
            "method": str(self.method),
            "rests_on": list(self.rests_on),
            "status": str(self.status),
            "seconds": round(self.seconds, 3),
            "detail": self.detail,
        }


class _TimeIsUp(BaseException):
    """Not an `Exception`, so that a library that tries one method after another does not take it for a failed attempt."""


@contextlib.contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Raise `_TimeIsUp` in the block after some seconds, where the platform and the thread allow it."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number: int, frame: Any) -> None:
        raise _TimeIsUp

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3), _AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
