"""The shipped divergences: one declaration each, everything else is derived.

A declaration is text. It holds the generator in the grammar of `bandtheory.expressions` and a title that says which divergence
and which normalisation it is; a family names its parameter, with the range in which the generator is convex. Limits,
saturation, closed forms, the conic program and code follow from the generator, so a new divergence is one new entry of
`DECLARATIONS` and nothing else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction

LARGEST_ORDER = 60  # of a power; the grammar takes polynomials up to degree 64
_NUMBER = re.compile(r"[+-]?(\d{1,20}(\.\d{0,20})?|\.\d{1,20})([eE][+-]?\d{1,2})?|[+-]?\d{1,20}/\d{1,20}")


class ParameterError(ValueError):
    """A parameter that is missing, not a number, or outside the range in which its generator is convex."""


@dataclass(frozen=True)
class Parameter:
    """The parameter of a family.

    Attributes:
        name: as the generator's text spells it; `symbol` is how it is printed.
        least, greatest: the range, its ends included unless they are in `excluded`.
        excluded: values that are not accepted.
        examples: two values at which the family is verified, plotted and shown.
    """

    name: str
    symbol: str
    least: int
    greatest: int
    examples: tuple[str, str]
    excluded: tuple[int, ...] = ()

    @property
    def accepted(self) -> str:
        """The range in words, such as `0 < λ < 1`."""
        left, right = ("<" if end in self.excluded else "≤" for end in (self.least, self.greatest))
        inner = [str(value) for value in self.excluded if value not in (self.least, self.greatest)]
        but = f" except {' and '.join(inner)}" if inner else ""
        return f"{self.least} {left} {self.symbol} {right} {self.greatest}{but}"

    def read(self, text: str, family: str) -> Fraction:
        """The exact value of a decimal or of a fraction such as `4/3`.

        Raises:
            ParameterError: not a number, or out of range; names both.
        """
        stripped = text.strip()
        given = f"{family}:{text}"
        if not _NUMBER.fullmatch(stripped) or re.search(r"/0+$", stripped):
            raise ParameterError(
                f"{given!r}: {text!r} is not a number; {family} takes {self.accepted}, as in {self.example(family)}"
            )
        value = Fraction(stripped)
        if not self.least <= value <= self.greatest or value in self.excluded:
            raise ParameterError(f"{given!r}: {self.symbol} = {stripped} is out of range; {family} takes {self.accepted}")
        return value

    def example(self, family: str) -> str:
        """A name that is accepted, quoted."""
        return repr(f"{family}:{self.examples[-1]}")


@dataclass(frozen=True)
class Declaration:
    """A named f-divergence `D_f(Q‖P) = Σ P f(Q/P)`, or a family of them.

    Attributes:
        name: lower case with underscores.
        generator: `f(u)` as text.
        title: for people, with the normalisation.
        parameter: of a family, else None.
        radius: for a monotone function of an f-divergence: the radius of `D_f` that a radius `delta` stands for.
    """

    name: str
    generator: str
    title: str
    parameter: Parameter | None = None
    radius: str = "delta"

    @property
    def pattern(self) -> str:
        """The name as a user types it: `kl`, `vajda:k`."""
        return self.name if self.parameter is None else f"{self.name}:{self.parameter.symbol}"

    @property
    def examples(self) -> tuple[str, ...]:
        """Names that can be used at once: the name itself, or a family at two values of its parameter."""
        if self.parameter is None:
            return (self.name,)
        return tuple(f"{self.name}:{value}" for value in self.parameter.examples)


_ALPHA = "(u**alpha - 1 - alpha*(u - 1))/(alpha*(alpha - 1))"

DECLARATIONS = (
    Declaration("kl", "-log(u)", "KL(P‖Q), the divergence of the BandPO paper"),
    Declaration("reverse_kl", "u*log(u)", "KL(Q‖P)"),
    Declaration("tv", "abs(u - 1)/2", "total variation, ½ Σ|q − p|"),
    Declaration("pearson_chi2", "(u - 1)**2", "Pearson χ², Σ (q − p)²/p"),
    Declaration("neyman_chi2", "(u - 1)**2/u", "Neyman χ², Σ (q − p)²/q"),
    Declaration("squared_hellinger", "(sqrt(u) - 1)**2", "squared Hellinger, Σ (√q − √p)²"),
    Declaration("le_cam", "(u - 1)**2/(u + 1)", "Le Cam (triangular discrimination), Σ (q − p)²/(q + p)"),
    Declaration(
        "jensen_shannon", "(u*log(2*u/(u + 1)) + log(2/(u + 1)))/2", "Jensen–Shannon, ½KL(P‖M) + ½KL(Q‖M), M = (P + Q)/2"
    ),
    Declaration("jeffreys", "(u - 1)*log(u)", "Jeffreys, KL(P‖Q) + KL(Q‖P)"),
    Declaration("symmetric_chi2", "(u - 1)**2*(u + 1)/u", "Pearson χ² + Neyman χ²"),
    Declaration(
        "vajda",
        "abs(u - 1)**k",
        "Vajda χᵏ, Σ p |q/p − 1|ᵏ (k = 2 is Pearson χ², k = 1 is 2·TV)",
        Parameter("k", "k", 1, LARGEST_ORDER, ("1.5", "3")),
    ),
    Declaration(
        "alpha",
        _ALPHA,
        "alpha divergence, (Σ p (q/p)^α − 1)/(α(α − 1)) (α → 0 is kl, α → 1 is reverse_kl)",
        Parameter("alpha", "α", -LARGEST_ORDER, LARGEST_ORDER, ("-0.5", "3"), (0, 1)),
    ),
    Declaration(
        "renyi",
        _ALPHA,
        "Rényi, log(Σ p (q/p)^α)/(α − 1)",
        Parameter("alpha", "α", 0, LARGEST_ORDER, ("0.5", "3"), (0, 1)),
        radius="(exp((alpha - 1)*delta) - 1)/(alpha*(alpha - 1))",
    ),
    Declaration(
        "hockey_stick",
        "max(u - gamma, 0)",
        "hockey stick, Σ max(q − γp, 0) (at radius 0: the ratio clip at γ)",
        Parameter("gamma", "γ", 1, 10**6, ("1.2", "2")),
    ),
    Declaration(
        "skew_jensen_shannon",
        "weight*u*log(u/(1 - weight + weight*u)) - (1 - weight)*log(1 - weight + weight*u)",
        "skew Jensen–Shannon, (1 − λ)KL(P‖M) + λKL(Q‖M), M = (1 − λ)P + λQ",
        Parameter("weight", "λ", 0, 1, ("0.1", "0.7"), (0, 1)),
    ),
)

BY_NAME = {declaration.name: declaration for declaration in DECLARATIONS}


def catalogue() -> tuple[str, ...]:
    """Names of the shipped divergences and families, in the order of declaration.

    A family is used with its parameter, as in `"vajda:3"`; `examples()` has names that can be used as they are.
    """
    return tuple(BY_NAME)


def examples() -> tuple[str, ...]:
    """Every shipped divergence as a name that can be used at once, families at two values of their parameter each."""
    return tuple(name for declaration in DECLARATIONS for name in declaration.examples)


def find(text: str) -> tuple[Declaration, Fraction | None] | None:
    """The declaration that a name such as `"kl"` or `"vajda:3"` refers to, with the parameter; None for an unknown name.

    Raises:
        ParameterError: a parameter that is missing, superfluous, not a number or out of range.
    """
    family, colon, value = text.partition(":")
    declaration = BY_NAME.get(family.strip())
    if declaration is None:
        return None
    parameter = declaration.parameter
    if parameter is None:
        if colon:
            raise ParameterError(f"{text!r}: {declaration.name} takes no parameter")
        return declaration, None
    if not colon:
        example = parameter.example(declaration.name)
        raise ParameterError(f"{declaration.name!r} is a family: write its parameter, {parameter.accepted}, as in {example}")
    return declaration, parameter.read(value, declaration.name)


def number_text(value: Fraction) -> str:
    """The shortest exact spelling: a decimal where it has one of at most 20 digits, else a fraction."""
    decimal = Context(prec=20).divide(Decimal(value.numerator), Decimal(value.denominator))
    if Fraction(decimal) != value:
        return f"{value.numerator}/{value.denominator}"
    normal = decimal.normalize()
    text = format(normal, "f")
    return text if len(text) <= 12 else str(normal).lower()
