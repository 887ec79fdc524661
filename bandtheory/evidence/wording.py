"""How a refuted claim is told in words: one screen, at most `ROWS` lines of `WIDTH` columns.

    theorem 1: g(p, upper) = δ: the claimed bound is outside the band
      divergence  kl, f(u) = -log(u)
      at          p = 0.367879 (logp = -1.0), delta = 1.0
      expected    log upper = 0.9209227
      got         log upper = 0.9848264
      there       g = 2.0, δ = 1.0
      reproduce
    import bandtheory as bt; print(bt.log_bounds(logp=[-1.0], divergence="kl", delta=1.0))

The code starts at the first column, to be copied as it stands; it is one line, or several where one would not fit.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

import mpmath
import numpy as np
from numpy.typing import NDArray

from bandtheory.divergence import FDivergence
from bandtheory.evidence.definition import Real
from bandtheory.high_precision import digits

WIDTH, ROWS = 100, 24
_LABEL = 14  # columns before the text of a row
_MOST_DIGITS = 25
_LONG_SPEC = 30  # characters; longer ones get a line of their own in the code


def screen(heading: str, rows: Sequence[tuple[str, str]], code: Sequence[str]) -> str:
    """A heading, labelled rows, and statements of Python; a row that is too long for its few lines is cut in its middle."""
    lines = _wrapped(heading, "", "  ")
    for label, text in rows:
        lines += _wrapped(text, f"  {label:<11} ", " " * _LABEL, 3 if label == "at" else 2)
    (first, *rest) = python_lines(code)
    if not rest and len(first) <= WIDTH - _LABEL:
        return "\n".join([*lines, f"  {'reproduce':<11} {first}"])
    return "\n".join([*lines, "  reproduce", first, *rest])


def _wrapped(text: str, first: str, others: str, most: int = 2) -> list[str]:
    text = " ".join(text.split())
    room = most * (WIDTH - len(others)) - 20  # words are not broken: some columns stay empty
    if len(text) > room:
        text = f"{text[: room // 2]} … {text[-room // 2 :]}"
    lines = textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=others, break_on_hyphens=False)
    return lines or [first.rstrip()]


def python_lines(statements: Sequence[str]) -> list[str]:
    """Statements on one line if it fits, else one a line; those that are still too long are broken where Python allows it."""
    line = "; ".join(statements)
    if len(line) <= WIDTH:
        return [line]
    return [part for statement in statements for part in _broken(statement)]


def _broken(statement: str) -> list[str]:
    """`f = "long text"` as adjacent strings in parentheses; a call with an argument a line; anything else as it is."""
    if len(statement) <= WIDTH:
        return [statement]
    text = re.fullmatch(r'(\w+) = "([^"\\]*)"', statement)
    if text:
        pieces = textwrap.wrap(text[2], WIDTH - 6, drop_whitespace=False, break_on_hyphens=False)
        return [f"{text[1]} = (", *(f'    "{piece}"' for piece in pieces), ")"]
    call = re.fullmatch(r"(\w+ = \w+\()(.*)\)", statement)
    if call:
        return [call[1], *(f"    {argument}," for argument in re.split(r", (?=\w+=)", call[2])), ")"]
    call = re.fullmatch(r"(print\([\w.]+\()(.*)\)\)", statement)
    if call:
        return [call[1], *(f"    {argument}," for argument in re.split(r", (?=\w+=)|(?<=\)), ", call[2])), "))"]
    return [statement]


def divergence_in_python(f: FDivergence) -> tuple[tuple[str, ...], str]:
    """Statements that come first, and the expression, by which a line of Python gives the divergence to the library."""
    if f.spec == f.name or not (f.parameters or f.radius != "delta"):
        text = f.name if f.spec == f.name else f.expression
        return ((), f'"{text}"') if len(text) <= _LONG_SPEC else ((f'f = "{text}"',), "f")
    parts = [f"name={f.name!r}", f'expression="{f.expression}"']
    if f.parameters:
        values = "".join(f'("{name}", Fraction("{value}")), ' for name, value in f.parameters)
        parts.append(f"parameters=({values.rstrip()})")
    if f.radius != "delta":
        parts.append(f'radius="{f.radius}"')
    imports = ("from bandtheory.divergence import FDivergence", *(["from fractions import Fraction"] if f.parameters else []))
    return (*imports, f"f = FDivergence({', '.join(parts)})"), "f"


def places(logp: Sequence[float] | NDArray[np.float64]) -> str:
    """`p = 0.37 (logp = -1.0)` for each of a few tokens."""
    return ", ".join(f"p = {_probability(float(x))} (logp = {float(x)!r})" for x in logp)


def _probability(logp: float) -> str:
    if logp > -1e-4:
        return f"1 - {mpmath.nstr(-mpmath.expm1(logp), 5)}"
    return str(mpmath.nstr(mpmath.exp(logp), 6))


def differing(expected: Real, got: Real) -> tuple[str, str]:
    """Two numbers with as many digits as it takes to see them differ, and two more; a wrong formula may leave the reals."""

    def text(x: Real, count: int) -> str:
        return str(mpmath.nstr(mpmath.mpmathify(x), count))

    with digits(40):
        for count in range(5, _MOST_DIGITS + 1):
            if text(expected, count) != text(got, count):
                break
        return text(expected, count + 2), text(got, count + 2)


def expected_and_got(name: str, expected: Real, got: Real) -> list[tuple[str, str]]:
    """The two rows of a counter-example that compare numbers."""
    first, second = differing(expected, got)
    return [("expected", f"{name} = {first}"), ("got", f"{name} = {second}")]
