"""Derived formulas in the shape a paper would print: short, denominators positive, logarithms of simple arguments."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from bandtheory.closed_form_search import symbols
from bandtheory.divergence import MAX_TERMS, expanded_size, tame

if TYPE_CHECKING:
    import sympy

_LATEX = (("→", r"$\to$"), ("∞", r"$\infty$"), ("′", "$'$"), ("·", r"$\cdot$"))


def unicode_lines(value: Any) -> list[str]:
    """A formula in two dimensions for a terminal."""
    return str(_printers()[0].doprint(value)).splitlines()


def latex(value: Any) -> str:
    """A formula for LaTeX's mathematics mode; a word is set as one."""
    text = str(_printers()[1].doprint(value))
    return rf"\text{{{text}}}" if text.isalpha() and len(text) > 1 else text


def latex_text(label: str) -> str:
    """A label of `Derivation.statements` for LaTeX."""
    for character, command in _LATEX:
        label = label.replace(character, command)
    return rf"\text{{{label}}}"


@functools.lru_cache(maxsize=1)
def _printers() -> tuple[Any, Any]:
    """sympy's printers, with the positive terms of a sum in front: `1 − p`, `u − 1`."""
    from sympy.printing.latex import LatexPrinter
    from sympy.printing.pretty.pretty import PrettyPrinter

    class PositiveFirst:
        def _as_ordered_terms(self, expression: sympy.Expr, order: str | None = None) -> list[sympy.Expr]:
            terms = expression.as_ordered_terms()
            return sorted(terms, key=lambda term: bool(term.could_extract_minus_sign()))

    class Unicode(PositiveFirst, PrettyPrinter):  # type: ignore[misc]
        pass

    class Latex(PositiveFirst, LatexPrinter):  # type: ignore[misc]
        pass

    return Unicode({"use_unicode": True, "wrap_line": False}), Latex()


def tidy(expression: sympy.Expr) -> sympy.Expr:
    """The shortest of several equal forms in p and δ."""
    import sympy

    p, m, _, _ = symbols()
    plain = expression.subs(m, 1 - p)
    if expanded_size(plain) > MAX_TERMS or not tame(plain):
        return plain
    if plain.has(sympy.log):
        plain = cancelled_logarithms(plain)
        forms = [plain, sympy.expand(sympy.expand_log(plain, force=True)), sympy.factor_terms(plain)]
    else:
        forms = [plain, sympy.expand(plain), sympy.simplify(plain), sympy.factor(sympy.together(plain))]
    return shortest(*map(_positive_denominator, forms))


def shortest(*forms: sympy.Expr) -> sympy.Expr:
    """The one that takes the least to write."""
    return min(forms, key=_length)


def cancelled_logarithms(expression: sympy.Expr) -> sympy.Expr:
    """The argument of each logarithm as one fraction in lowest terms, of positive polynomials."""
    import sympy

    def cancelled(argument: sympy.Expr) -> sympy.Expr:
        return _positive_denominator(sympy.factor(sympy.cancel(argument))) if tame(argument) else argument

    return expression.replace(sympy.log, lambda argument: sympy.log(cancelled(argument)))


def _length(expression: sympy.Expr) -> int:
    """Operations, a minus in front counted twice."""
    return int(expression.count_ops()) + int(expression.could_extract_minus_sign())


def _positive_denominator(expression: sympy.Expr) -> sympy.Expr:
    """`2p/(2 − p)` where sympy writes `−2p/(p − 2)`, in every product: of two spellings, the one that is positive inside."""
    import sympy

    inside = {symbol: sympy.Rational(1, 100 if symbol.name == "delta" else 3) for symbol in expression.free_symbols}

    def turned(product: sympy.Expr) -> sympy.Expr:
        factors, sign = [], 1
        for factor in sympy.Mul.make_args(product):
            base, exponent = factor.as_base_exp()
            if base.is_Add and exponent.is_Integer and base.subs(inside).is_negative:
                factors.append((-base) ** exponent)
                sign *= -1 if exponent % 2 else 1
            else:
                factors.append(factor)
        return sympy.Mul(sign, *factors)

    return expression.replace(lambda e: e.is_Mul or (e.is_Pow and e.exp.is_Integer), turned)
