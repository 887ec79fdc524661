"""One piece of an exhaustive comparison: consecutive bit patterns of log-probabilities, computed bounds beside exact ones.

The reference is `bandtheory.log_bounds` in float64, to which `REFERENCE_ERROR` is conceded; of ratios it is its exponential, to
which |log-bound| times that is. That this is enough is decided by `bandtheory.certify` in ball arithmetic, which shares no code
with either, for a random sample of every piece, for the worst inputs found and for their neighbours. A result is a dict of JSON
values, and results of pieces can be merged.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from bandtheory.bounds import log_bounds
from bandtheory.evidence.certificate import SIDES, certify
from bandtheory.rules import Band
from bandtheory.torch import bounds as torch_bounds
from bandtheory.torch import log_bounds as torch_log_bounds
from benchmarks.exhaustive_errors import REFERENCE_ERROR, Errors, RatioErrors, worst_of
from benchmarks.parallel import Progress
from benchmarks.units_in_the_last_place import FLOAT32, FORMATS, Floats, Format

BLOCK = 2**20  # inputs at a time: fewer, and the root finder's table of first guesses is made too often
SLICE = 2**15  # of them compared at a time, so that the intermediates stay in cache
LEAST_SAMPLE = 16  # certificates of a small piece, a side

Result = dict[str, Any]


@dataclass(frozen=True)
class Piece:
    """What is measured: every `stride`-th pattern of |log p| from `first` on, `count` of them, and the limits in some pieces.

    Attributes:
        format: name of the type of the log-probabilities.
        divergence, delta: of the band.
        device: that computes the bounds; the reference always comes from the processor.
        first, stride, count: of the patterns.
        limits: whether +0 and −∞ are measured as well.
        sample: one certificate for so many inputs, at random.
        seed: of the sample.
    """

    format: str
    divergence: str
    delta: float
    device: str
    first: int
    stride: int
    count: int
    limits: bool
    sample: int
    seed: int

    @property
    def rule(self) -> str:
        """As `bandtheory.torch` takes it."""
        return str(Band(self.divergence, self.delta))

    def inputs(self) -> Iterator[torch.Tensor]:
        """Log-probabilities, at most `BLOCK` at a time, from 0 downwards."""
        kind = FORMATS[self.format]
        integer = torch.int32 if kind.bits == 32 else torch.int16
        sign = -(2 ** (kind.bits - 1))
        for begin in range(0, self.count, BLOCK):
            size = min(BLOCK, self.count - begin)
            patterns = self.first + self.stride * (begin + np.arange(size)) + sign
            yield torch.from_numpy(patterns).to(integer).view(getattr(torch, self.format))
        if self.limits:
            yield torch.tensor([0.0, -math.inf], dtype=getattr(torch, self.format))


def patterns_above(lowest: float, name: str) -> int:
    """How many numbers of a type lie in (lowest, 0], −0 the first of them and +0 not among them."""
    return math.ceil(-float(FORMATS[name].ordinal(np.array([lowest]))[0]))


def measure(piece: Piece, progress: Progress) -> Result:
    """Both bounds of all inputs of a piece, counted and compared."""
    generator = np.random.default_rng([piece.seed, piece.first])
    sampled = np.unique(generator.integers(piece.count, size=max(LEAST_SAMPLE, piece.count // piece.sample)))
    sides = {name: Side(name, piece) for name in SIDES}
    done = 0
    for tensor in piece.inputs():
        logp = tensor.to(torch.float64).numpy()
        computed = [function(tensor.to(piece.device), piece.rule) for function in (torch_log_bounds, torch_bounds)]
        exact = log_bounds(logp=logp, divergence=piece.divergence, delta=piece.delta)
        for name, side in sides.items():
            found, ratio = (getattr(bounds, name).cpu().to(torch.float64).numpy() for bounds in computed)
            known = getattr(exact, name)
            for begin in range(0, logp.size, SLICE):
                part = slice(begin, begin + SLICE)
                side.add(logp[part], found[part], ratio[part], known[part])
            chosen = sampled[(sampled >= done) & (sampled < done + logp.size)] - done
            side.sampled += zip(logp[chosen].tolist(), known[chosen].tolist(), strict=True)
        done += logp.size
        progress(done, piece.count + 2 * piece.limits)
    return {name: side.result() for name, side in sides.items()}


class Side:
    """What is known so far of one bound of a piece."""

    def __init__(self, name: str, piece: Piece) -> None:
        self.name, self.piece = name, piece
        self.errors, self.ratio = Errors(FORMATS[piece.format]), RatioErrors(Errors(FORMATS[piece.format]))
        self.not_a_number = self.infinity_differs = self.decided = 0
        self.sampled: list[tuple[float, float]] = []

    def add(self, logp: Floats, computed: Floats, ratio: Floats, exact: Floats) -> None:
        """Take in some inputs: the log-bounds and the ratios computed, and the exact log-bounds."""
        kind = FORMATS[self.piece.format]
        self.not_a_number += int((np.isnan(computed) | np.isnan(ratio)).sum())
        self.infinity_differs += int((np.isinf(exact) & (computed != exact)).sum())
        expected = kind.rounded(exact)
        if kind is not FLOAT32:
            self._decide(logp, exact, expected)
        self.errors.add(logp, computed, exact, expected, exact)
        self.ratio.add(logp, ratio, exact)

    def _decide(self, logp: Floats, exact: Floats, expected: Floats) -> None:
        """Correct the expected results, in place, where float64 does not know which of two numbers is nearer."""
        for i in np.flatnonzero(FORMATS[self.piece.format].near_tie(exact, REFERENCE_ERROR)):
            expected[i] = nearest(FORMATS[self.piece.format], float(logp[i]), float(exact[i]), self.name, self.piece)
            self.decided += 1

    def result(self) -> Result:
        """JSON values; the certificates are made now."""
        worst = self.errors.worst + self.ratio.errors.worst
        claims = self.sampled + [(float.fromhex(at), exact) for _, at, exact in worst]
        beside = np.array(sorted({x for _, at, _ in worst for x in _neighbours(float.fromhex(at), self.piece.format)}))
        if beside.size:  # few, so their references are computed once more, apart from the array they came from
            exact = log_bounds(logp=beside, divergence=self.piece.divergence, delta=self.piece.delta)
            claims += zip(beside.tolist(), getattr(exact, self.name).tolist(), strict=True)
        return self.errors.result() | {
            "not_a_number": self.not_a_number,
            "infinity_differs": self.infinity_differs,
            "decided": self.decided,
            "certificates": len(claims),
            "not_certified": uncertified(self.piece, self.name, claims),
            "ratio": self.ratio.result(),
        }


def nearest(kind: Format, logp: float, exact: float, side: str, piece: Piece) -> float:
    """The number of a format nearest to the true log-bound, by a certificate for the middle between two neighbours.

    Raises:
        ArithmeticError: ball arithmetic cannot tell either.
    """
    below, above, even = (float(part[0]) for part in kind.around(np.array([exact])))
    spacing = float(kind.spacing(np.array([exact]))[0])
    middle = math.copysign(below + spacing / 2, exact)
    certificate = certify(logp, None, piece.divergence, piece.delta, side, log_ratio=middle, tolerance=0.0)
    if certificate.verdict == "undecided":
        raise ArithmeticError(f"{piece.rule}, log p = {logp!r}: is the {side} log-bound above {middle!r}? Undecided.")
    if certificate.verdict == "on":
        return math.copysign(below if even else above, exact)
    # a middle inside the band lies between 0 and the bound, so the bound is the further one from 0
    return math.copysign(above if certificate.verdict == "inside" else below, exact)


def uncertified(piece: Piece, side: str, claims: Sequence[tuple[float, float]]) -> list[list[Any]]:
    """Those (log p, log-bound, verdict) that are not the bound within `REFERENCE_ERROR`."""
    if not claims:
        return []
    logp, bounds = np.array(claims).T
    verdicts = certify(logp, None, piece.divergence, piece.delta, side, log_ratio=bounds, tolerance=REFERENCE_ERROR).verdict
    return [[x.hex(), bound, str(verdict)] for (x, bound), verdict in zip(claims, verdicts, strict=True) if verdict != "on"]


def merge(results: Iterable[Result]) -> Result:
    """The result of several pieces together, in whatever order they come."""
    return functools.reduce(_merge, results)


def _merge(one: Result, other: Result) -> Result:
    return {key: _merge_value(key, one[key], other[key]) for key in one}


def _merge_value(key: str, one: Any, other: Any) -> Any:
    if isinstance(one, dict):
        return _merge(one, other)
    if key in ("counts", "overflow", "zero"):
        return [a + b for a, b in zip(one, other, strict=True)]
    if key in ("largest", "largest_denormal"):
        return max(one, other)
    return worst_of(one + other) if key == "worst" else sorted(one + other) if key == "not_certified" else one + other


def _neighbours(logp: float, name: str) -> Iterator[float]:
    """The log-probabilities of the same type beside one."""
    here = torch.tensor(logp, dtype=getattr(torch, name))
    for end in (0.0, -math.inf):
        beside = torch.nextafter(here, torch.tensor(end, dtype=here.dtype)).item()
        if beside != logp:
            yield beside
