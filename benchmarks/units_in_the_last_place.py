"""Errors of floating-point numbers in units in the last place.

A format has `digits` binary digits, a smallest positive number 2**`least` and no number from 2**`top` on. Around x with
2**e ≤ |x| < 2**(e + 1) its numbers are 2**(e + 1 − digits) apart, denormal ones 2**`least`; that distance, at the exact result
and not at the computed one, is the unit. Infinity counts as 2**`top`, the number that would come after the largest: a result
that overflows is as wrong as any other by the same distance. Everything is done in float64, which holds every format here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

EXPONENT_BITS = np.uint64(0x7FF0000000000000)  # of a float64


@dataclass(frozen=True)
class Format:
    """A binary floating-point format.

    Attributes:
        name: as torch spells it.
        bits: of one number; the first is the sign.
        digits: of the significand, the hidden one included.
        least: exponent of the smallest positive number.
        top: exponent of the power of two that is just too large.
    """

    name: str
    bits: int
    digits: int
    least: int
    top: int

    @property
    def limit(self) -> float:
        """2**top, in whose place the format has infinity."""
        return 2.0**self.top

    @property
    def infinity(self) -> int:
        """The bit pattern of infinity, which is how many numbers ≥ 0 there are: their patterns are 0, 1, 2 … in their order."""
        return (self.top - self.least - self.digits + 2) << (self.digits - 1)

    def spacing(self, x: Floats) -> Floats:
        """The unit in the last place at each x."""
        power = (np.ascontiguousarray(x).view(np.uint64) & EXPONENT_BITS).view(np.float64)  # 2**e; 0 for 0, inf for inf
        return np.clip(power * 2.0 ** (1 - self.digits), 2.0**self.least, 2.0 ** (self.top - self.digits))

    def rounded(self, x: Floats) -> Floats:
        """The nearest number of the format, of two the one whose last digit is 0."""
        unit = self.spacing(x)
        nearest = np.rint(x / unit) * unit
        return np.where(np.abs(nearest) >= self.limit, np.copysign(np.inf, x), nearest)

    def error(self, computed: Floats, exact: Floats) -> Floats:
        """`|computed − exact|` in units at `exact`: infinite for NaN, and for a number in place of an exact infinity."""
        exact_or_limit = np.clip(exact, -self.limit, self.limit)
        error = np.abs(np.clip(computed, -self.limit, self.limit) - exact_or_limit) / self.spacing(exact)
        wrong = np.isnan(computed) | (np.isinf(exact) & (computed != exact))
        return np.where(wrong, np.inf, error) if wrong.any() else error

    def ordinal(self, x: Floats) -> Floats:
        """The place of each number in the format: 0 for 0, 1 for the smallest positive one; a fraction for one in between."""
        unit = self.spacing(x)
        size = np.minimum(np.abs(x), self.limit) / unit + (np.log2(unit) - self.least) * 2.0 ** (self.digits - 1)
        return np.copysign(size, x)

    def around(self, x: Floats) -> tuple[Floats, Floats, Floats]:
        """The numbers `|x|` lies between, towards and away from 0, and whether the nearer one to 0 is even (1.0) or not."""
        unit = self.spacing(x)
        below = np.floor(np.abs(x) / unit)
        above = (below + 1) * unit
        return below * unit, np.where(above >= self.limit, np.inf, above), 1 - np.mod(below, 2)

    def near_tie(self, x: Floats, relative: float) -> NDArray[np.bool_]:
        """Where x is so close to the middle of two neighbours that a relative error could have it rounded the other way."""
        size = np.minimum(np.abs(x), 2 * self.limit)
        place = size / self.spacing(x)
        return (size < self.limit) & (np.abs(place - np.floor(place) - 0.5) <= relative * place)


FLOAT32 = Format("float32", 32, 24, -149, 128)
FLOAT16 = Format("float16", 16, 11, -24, 16)
BFLOAT16 = Format("bfloat16", 16, 8, -133, 128)
FORMATS = {each.name: each for each in (FLOAT32, FLOAT16, BFLOAT16)}
