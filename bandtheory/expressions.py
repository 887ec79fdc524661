"""Text to sympy by an explicit whitelist.

The grammar is a small part of Python's expression syntax, read with `ast.parse` and translated node by node. Nothing is
evaluated, no name is looked up outside `FUNCTIONS`, `CONSTANTS` and the declared parameters. The size of the text is bounded
before any algebra, and the size of numbers, exponents and degrees after each step of it: sympy hangs on large ones.

    expression := number | u | pi | e | parameter | -x | x + y | x - y | x * y | x / y | x ** constant | function(x, ...)
    function   := log | exp | sqrt | abs | max | min
"""

from __future__ import annotations

import ast
import math
import re
import warnings
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import sympy

MAX_LENGTH = 400
MAX_DEPTH = 24
MAX_NODES = 160
MAX_EXPONENT = 64
MAX_EXPONENT_OF_SUM = 16  # beyond, sympy takes minutes to rearrange what follows from it
MAX_DIGITS = 40
MAX_BITS = 4096  # of a numerator or denominator after arithmetic: (1 + 1e-39)**64**64**64 stays near 1 but has 10⁷ digits
MAX_WITH_LOG = 10**6  # of a numerator or denominator next to log(number) inside exp, where sympy forms number**factor
MAX_DEGREE = 64  # of a sum of polynomials or quotients in u with rational coefficients
MAX_IRRATIONAL_DEGREE = 4  # the same with pi, e, sqrt(2), ...: sympy factors it to learn a sign, (u + 3**0.7)**8 takes minutes
MAX_GROWTH = 600.0  # ln of the largest argument of exp on u in [1e-120, 1e120]; exp(u**8) there takes mpmath minutes

FUNCTIONS = ("log", "exp", "sqrt", "abs", "max", "min")
CONSTANTS = ("pi", "e")
_OUTSIDE = re.compile(r"[^A-Za-z0-9_ \t\r\n.,+\-*/^()]")


class ExpressionError(ValueError):
    """The text is outside the grammar; the message quotes the part and says what is accepted."""


@lru_cache(maxsize=1)
def symbol() -> sympy.Symbol:
    """The argument `u > 0` of every generator, as the one sympy symbol the whole library uses."""
    import sympy

    return sympy.Symbol("u", positive=True)


@lru_cache(maxsize=1)
def radius_symbol() -> sympy.Symbol:
    """The radius `δ > 0` (nats) of a band."""
    import sympy

    return sympy.Symbol("delta", positive=True)


def parse(text: str, parameters: Mapping[str, Fraction] | None = None, variable: sympy.Symbol | None = None) -> sympy.Expr:
    """Translate a generator written in `u` to sympy, exactly: decimals become rationals.

    Args:
        text: an expression of the grammar above, at most 400 characters, such as `"u*log(u) - u + 1"`.
        parameters: values for further names, such as `{"k": Fraction(3)}`.
        variable: what stands in the place of `u`, such as `radius_symbol()`.

    Raises:
        ExpressionError: anything outside the grammar or its size limits.
    """
    if not isinstance(text, str):
        raise ExpressionError(f"expression must be a string, got {type(text).__name__}")
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"expression has {len(text)} characters; at most {MAX_LENGTH} are accepted")
    if outside := _OUTSIDE.search(text):
        raise ExpressionError(
            f"expression {text!r} has the character {outside[0]!r} at position {outside.start()}; "
            "accepted: ASCII letters, digits, spaces and . , + - * / ( )"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python warns about "1if"; here it is an error in the next lines anyway
            tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else type(error).__name__
        raise ExpressionError(f"expression {text!r} cannot be read: {reason}") from None
    if sum(1 for _ in ast.walk(tree)) > 3 * MAX_NODES:
        raise ExpressionError(f"expression {text!r} is too large; at most about {MAX_NODES} operations are accepted")
    try:
        return _Translator(text, parameters or {}, variable or symbol()).translate(tree.body, MAX_DEPTH)
    except ExpressionError:
        raise
    except (ArithmeticError, AttributeError, NotImplementedError, RecursionError, TypeError, ValueError) as error:
        # sympy's own refusals, such as max(log(-u), 1): "The argument 'log(-u)' is not comparable"
        raise ExpressionError(f"expression {text!r} is not a real function of u: {error}") from None


def text(expression: sympy.Expr) -> str:
    """An expression written in the grammar that `parse` reads."""
    spelling = str(expression)
    for theirs, ours in (("Abs", "abs"), ("Max", "max"), ("Min", "min"), ("E", "e")):
        spelling = re.sub(rf"\b{theirs}\b", ours, spelling)
    return spelling


class _Translator:
    def __init__(self, text: str, parameters: Mapping[str, Fraction], variable: sympy.Symbol) -> None:
        import sympy

        self.text = text
        self.sympy = sympy
        self.names: dict[str, Any] = {variable.name: variable, "pi": sympy.pi, "e": sympy.E}
        self.names |= {name: sympy.Rational(value.numerator, value.denominator) for name, value in parameters.items()}
        self.functions: dict[str, tuple[Callable[..., Any], int, int]] = {
            "log": (sympy.log, 1, 1),
            "exp": (self._exp, 1, 1),
            "sqrt": (sympy.sqrt, 1, 1),
            "abs": (sympy.Abs, 1, 1),
            "max": (sympy.Max, 2, 8),
            "min": (sympy.Min, 2, 8),
        }

    def refuse(self, node: ast.AST, why: str) -> ExpressionError:
        part = ast.get_source_segment(self.text.strip(), node) or type(node).__name__
        return ExpressionError(f"{part!r} in expression {self.text!r}: {why}")

    def translate(self, node: ast.expr, depth: int) -> Any:
        if depth == 0:
            raise self.refuse(node, f"nested deeper than {MAX_DEPTH} levels")
        match node:
            case ast.Constant(value=value):
                return self._number(node, value)
            case ast.Name(id=name):
                if name not in self.names:
                    raise self.refuse(node, f"unknown name; accepted: {', '.join((*self.names, *FUNCTIONS))}")
                return self.names[name]
            case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
                value = self.translate(operand, depth - 1)
                return -value if isinstance(sign, ast.USub) else value
            case ast.BinOp(left=left, op=operator, right=right):
                return self._binary(node, operator, self.translate(left, depth - 1), self.translate(right, depth - 1))
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in self.functions:
                function, least, most = self.functions[name]
                if not least <= len(arguments) <= most:
                    raise self.refuse(node, f"{name} takes {least if least == most else f'{least} to {most}'} arguments")
                values = [self.translate(a, depth - 1) for a in arguments]
                if len(values) > 1:  # max and min look at the sign of differences
                    self._check_degree(node, self.sympy.Add(*values, evaluate=False))
                return self._finite(node, function(*values))
        raise self.refuse(node, "not in the grammar; accepted: numbers, u, + - * / **, " + ", ".join(FUNCTIONS))

    def _number(self, node: ast.expr, value: object) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.refuse(node, "not a real number")
        digits = (ast.get_source_segment(self.text.strip(), node) or "").replace("_", "")
        mantissa, _, exponent = digits.lower().partition("e")
        if len(mantissa) > MAX_DIGITS or len(exponent) > 4 or not set(mantissa) <= set("0123456789."):
            raise self.refuse(node, f"not a decimal number of at most {MAX_DIGITS} digits")
        exact = Fraction(digits)
        if exact and not -300 <= _decimal_exponent(exact) <= 300:
            raise self.refuse(node, "outside 1e-300 to 1e300")
        return self.sympy.Rational(exact.numerator, exact.denominator)

    def _binary(self, node: ast.expr, operator: ast.operator, left: Any, right: Any) -> Any:
        match operator:
            case ast.Add():
                return self._finite(node, left + right)
            case ast.Sub():
                return self._finite(node, left - right)
            case ast.Mult():
                return self._finite(node, left * right)
            case ast.Div():
                return self._finite(node, left / right)
            case ast.Pow():
                return self._power(node, left, right)
            case ast.BitXor():
                raise self.refuse(node, "^ is not a power here; write **")
        raise self.refuse(node, "operator not accepted; accepted: + - * / **")

    def _power(self, node: ast.expr, base: Any, exponent: Any) -> Any:
        if not exponent.is_number or not exponent.is_real or abs(exponent) > MAX_EXPONENT:
            raise self.refuse(node, f"the exponent must be a real constant of magnitude at most {MAX_EXPONENT}")
        if base.is_Add and abs(exponent) > MAX_EXPONENT_OF_SUM and base.subs(symbol(), 1) != 0:
            raise self.refuse(node, f"a sum that is not 0 at u = 1 may be raised to {MAX_EXPONENT_OF_SUM} at most")
        return self._finite(node, base**exponent)

    def _exp(self, argument: Any) -> Any:
        """The sizes are checked first: sympy turns exp(u*(1e300*log(2) + 7)) into an integer power of 2."""
        s = self.sympy
        if any(x.is_number for x in argument.atoms(s.log)) and _largest(argument, s.Rational) > MAX_WITH_LOG:
            raise ExpressionError(f"exp of the log of a number with a factor beyond {MAX_WITH_LOG} in expression {self.text!r}")
        if argument.is_number and abs(argument) > 700:
            raise ExpressionError(f"exp of a constant beyond 700 in expression {self.text!r}")
        if not argument.is_number and _growth(argument) > MAX_GROWTH:
            raise ExpressionError(
                f"exp of {argument} in expression {self.text!r} may pass exp(1e260) for u between 1e-120 and 1e120"
            )
        return s.exp(argument)

    def _finite(self, node: ast.expr, value: Any) -> Any:
        """Refuse what is not real, and what grows: sympy merges powers and exponentials after each was checked alone."""
        s = self.sympy
        if value.has(s.zoo, s.nan, s.oo, s.I):
            raise self.refuse(node, "not a finite real number")
        if value.is_Rational and value != 0 and not -300 <= _decimal_exponent(Fraction(value.p, value.q)) <= 300:
            raise self.refuse(node, "outside 1e-300 to 1e300")
        if _largest(value, s.Rational).bit_length() > MAX_BITS:
            raise self.refuse(node, f"the exact fraction has more than {MAX_BITS} bits")
        if any(x.exp.is_number and abs(x.exp) > MAX_EXPONENT**2 for x in value.atoms(s.Pow)):
            raise self.refuse(node, f"the combined exponent is beyond {MAX_EXPONENT**2}")
        for merged in value.atoms(s.exp):
            self._exp(merged.args[0])
        self._check_degree(node, value)
        if value.is_extended_real is False:  # last: sympy may factor polynomials to answer
            raise self.refuse(node, "not a finite real number")
        return value

    def _check_degree(self, node: ast.expr, value: Any) -> None:
        for part in value.atoms(self.sympy.Add) | {value}:
            degree = _degree(part) if part.has(self.sympy.Add) else None
            if degree and degree.total > (MAX_IRRATIONAL_DEGREE if degree.irrational else MAX_DEGREE):
                kind = f"irrational coefficients and degree {degree.total}, at most {MAX_IRRATIONAL_DEGREE}"
                kind = kind if degree.irrational else f"degree {degree.total}, at most {MAX_DEGREE}"
                raise self.refuse(node, f"a sum of polynomials in u with {kind} is accepted")


class _Degree(NamedTuple):
    """Size of a quotient of polynomials in u before anything cancels."""

    numerator: int
    denominator: int
    irrational: bool

    @property
    def total(self) -> int:
        return self.numerator + self.denominator


def _degree(x: Any) -> _Degree | None:
    """Degrees of `x` as a quotient of polynomials in `u`, an upper bound; None if it is not one."""
    if x.is_number:
        return _Degree(0, 0, not x.is_Rational)
    if x.is_Symbol:
        return _Degree(1, 0, False)
    if x.is_Pow and x.exp.is_Integer:
        base = _degree(x.base)
        if base is None:
            return None
        up, down = (base.numerator, base.denominator) if x.exp > 0 else (base.denominator, base.numerator)
        return _Degree(up * abs(int(x.exp)), down * abs(int(x.exp)), base.irrational)
    if not (x.is_Add or x.is_Mul):
        return None
    parts = [_degree(part) for part in x.args]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    numerator = (max if x.is_Add else sum)(part.numerator for part in known)
    return _Degree(numerator, sum(part.denominator for part in known), any(part.irrational for part in known))


def _largest(x: Any, rational: type) -> int:
    """The largest numerator or denominator in an expression."""
    return max((max(abs(int(r.p)), int(r.q)) for r in x.atoms(rational)), default=0)


def _growth(x: Any) -> float:
    """About ln of the largest |x| for u in [1e-120, 1e120], from the sizes of its parts: cancellation and signs are ignored."""
    import sympy

    if x.is_number:
        return max(0.0, math.log1p(abs(float(sympy.N(x, 15)))))
    if x.is_Symbol:
        return 120 * math.log(10)
    parts = [_growth(part) for part in x.args]
    if x.is_Mul:
        return sum(parts)
    if x.is_Pow and x.exp.is_number:
        return abs(float(x.exp)) * parts[0]
    if isinstance(x, sympy.exp):
        return math.exp(min(parts[0], 700.0))
    if isinstance(x, sympy.log):
        return math.log1p(parts[0])
    return math.log(len(parts)) + max(parts)


def _decimal_exponent(value: Fraction) -> float:
    bits = abs(value.numerator).bit_length() - value.denominator.bit_length()
    return bits * 0.30103
