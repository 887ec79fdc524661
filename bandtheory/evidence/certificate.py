"""Certificates: is this number the bound of the band? Decided in ball arithmetic, from the generator and the number alone.

A certificate holds the verdict on a claim, an enclosure of the true bound and a Fenchel dual bound; formulas are in `decision`.
A claim x is on the bound b if `|x − b| ≤ tolerance·|b| + 5e-324`, the last term being the spacing of float64 around 0.

Trusted: flint's arb; sympy for the parsed generator, its derivative, and the limits f(0), f'(∞); that the generator is convex
with f(1) = 0, which `bandtheory.divergence(...)` checks of an expression, but nobody of an `FDivergence` made by hand.

No verdict is a guess: what `MOST_BITS` bits do not decide is "undecided". It takes a claim exactly a tolerance away from the
bound, or a generator whose values no computer can hold. The saturation of a lower bound is no borderline case: p is
transcendental for every float logp below 0 (Lindemann), so an algebraic generator has no exact tie there (tv at δ = p, say).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from flint import arb
from numpy.typing import ArrayLike, NDArray

from bandtheory.ball import BallError, float_above, float_below, precision
from bandtheory.divergence import DivergenceError, FDivergence, as_divergence
from bandtheory.evidence.bracket import MOST_BITS, SEARCH_BITS, BallGenerator, ball_generator
from bandtheory.evidence.decision import Claim, dual_reach, enclosed, verdict_of

TOLERANCE = 1e-12
SIDES = {"upper": 1, "lower": -1}

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Certificate:
    """What is certain about one bound, and about the claim.

    Attributes:
        divergence, logp, delta, side, tolerance: as given.
        claim: the ratio or log-ratio on trial; `claim_is_log` says which.
        verdict: "on" the bound within the tolerance; "inside", on the feasible side of it by more than that; "outside";
            "undecided".
        enclosure, log_enclosure: (lower, upper) of the true bound as a ratio, and of its logarithm; floats rounded outwards.
        dual_bound, log_dual_bound: Fenchel dual bound, rounded outwards: for an upper bound no ratio of the band exceeds it.
        multiplier: λ ≥ 0 of the dual bound, for the radius of `D_f` and the probability Q_a (the ratio changes by λ/p).
        price: ν of the dual bound.
    """

    divergence: str
    logp: float
    delta: float
    side: str
    claim: float
    claim_is_log: bool
    tolerance: float
    verdict: str
    enclosure: tuple[float, float]
    log_enclosure: tuple[float, float]
    dual_bound: float
    log_dual_bound: float
    multiplier: float
    price: float

    @property
    def holds(self) -> bool:
        """Whether the claim is certainly the bound, within the tolerance."""
        return self.verdict == "on"

    def __str__(self) -> str:
        words = {
            "on": f"is the bound within {self.tolerance:g} relative",
            "undecided": f"undecided with {MOST_BITS} bits",
        }
        kind = "log-ratio" if self.claim_is_log else "ratio"
        relation = "≤" if self.side == "upper" else "≥"
        verdict = words.get(self.verdict, f"lies {self.verdict} by more than {self.tolerance:g} relative")
        return "\n".join(
            [
                f"{self.divergence}, δ = {self.delta!r}, log p = {self.logp!r}: {self.side} bound",
                f"  claim       {kind} {self.claim!r}: {verdict}",
                f"  bound       in [{self.enclosure[0]!r}, {self.enclosure[1]!r}]",
                f"  log bound   in [{self.log_enclosure[0]!r}, {self.log_enclosure[1]!r}]",
                f"  dual bound  ratio {relation} {self.dual_bound!r} by λ = {self.multiplier:.6g}, ν = {self.price:.6g}",
            ]
        )


@dataclass(frozen=True)
class Certificates:
    """Certificates of an array: each field of `Certificate` is an array of the broadcast shape, an index gives one or a part.

    Attributes:
        parts: the certificates, an object array.
    """

    parts: NDArray[np.object_]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the arguments, broadcast together."""
        return self.parts.shape

    @property
    def holds(self) -> NDArray[np.bool_]:
        """Which claims are certainly the bound, within the tolerance."""
        return self._field("holds", np.bool_)

    @property
    def verdict(self) -> NDArray[np.str_]:
        """ "on", "inside", "outside" or "undecided"."""
        return self._field("verdict", np.str_)

    @property
    def enclosure(self) -> tuple[Floats, Floats]:
        """Lower and upper ends of enclosures of the true bounds, ratios."""
        return self._field("enclosure", np.float64, 0), self._field("enclosure", np.float64, 1)

    @property
    def log_enclosure(self) -> tuple[Floats, Floats]:
        """Lower and upper ends of enclosures of the true bounds, log-ratios."""
        return self._field("log_enclosure", np.float64, 0), self._field("log_enclosure", np.float64, 1)

    @property
    def dual_bound(self) -> Floats:
        """Fenchel dual bounds, ratios."""
        return self._field("dual_bound", np.float64)

    @property
    def log_dual_bound(self) -> Floats:
        """Fenchel dual bounds, log-ratios."""
        return self._field("log_dual_bound", np.float64)

    @property
    def multiplier(self) -> Floats:
        """λ of each dual bound."""
        return self._field("multiplier", np.float64)

    @property
    def price(self) -> Floats:
        """ν of each dual bound."""
        return self._field("price", np.float64)

    def _field(self, name: str, kind: Any, index: int | None = None) -> NDArray[Any]:
        values = (getattr(part, name) for part in self.parts.ravel())
        return np.array([v if index is None else v[index] for v in values], dtype=kind).reshape(self.shape)

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, index: Any) -> Certificate | Certificates:
        part = self.parts[index]
        return Certificates(part) if isinstance(part, np.ndarray) else part

    def __iter__(self) -> Iterator[Certificate | Certificates]:
        return (self[i] for i in range(len(self)))

    def __str__(self) -> str:
        verdicts = self.verdict.ravel().tolist()
        counts = ", ".join(f"{verdicts.count(v):,} {v}" for v in ("on", "inside", "outside", "undecided") if v in verdicts)
        first = next((part for part in self.parts.ravel() if not part.holds), None)
        return f"{len(verdicts):,} certificates: {counts or 'none'}" + (
            f"\nthe first that does not hold:\n{first}" if first else ""
        )


def certify(
    logp: ArrayLike,
    ratio: ArrayLike | None = None,
    divergence: str | FDivergence = "kl",
    delta: ArrayLike = 0.05,
    side: str = "upper",
    *,
    log_ratio: ArrayLike | None = None,
    tolerance: float = TOLERANCE,
) -> Certificate | Certificates:
    """Decide whether `ratio` is the bound of the band, and enclose the true bound.

    Args:
        logp: log-probabilities of the old policy, nats, ≤ 0; −inf and 0 stand for the limits. A number or an array.
        ratio: the claimed bound, `Q_a/P_a` ≥ 0; inf stands for what float64 cannot hold. Or
        log_ratio: its logarithm, for ratios that float64 cannot hold; −inf is the ratio 0. The tolerance is then relative to
            the logarithm, which near ratio 1 asks for more.
        divergence: a catalogue name, an expression in `u`, or an `FDivergence`.
        delta: radius in nats, ≥ 0. It broadcasts with logp and the claim.
        side: "upper" or "lower".
        tolerance: relative, 0 ≤ tolerance < 1.

    Returns:
        A `Certificate`, or `Certificates` if any argument is an array.

    Raises:
        ValueError: an argument outside its range; names the entry.
        DivergenceError: an unknown or faulty divergence.

    Example:
        >>> print(certify(-1.0, 1.5, "tv", 0.05).verdict)  # the bound is 1 + 0.05 e = 1.1359…
        outside
    """
    sign = _sign(side)
    if not 0 <= tolerance < 1:
        raise ValueError(f"tolerance = {tolerance!r} is not a relative tolerance in [0, 1)")
    if (ratio is None) == (log_ratio is None):
        raise ValueError("give exactly one of ratio (≥ 0) and log_ratio (its logarithm)")
    log_p = _numbers("logp", logp, lambda x: x <= 0, "numbers ≤ 0 (nats) and -inf")
    radius = _numbers("delta", delta, lambda x: (x >= 0) & np.isfinite(x), "finite radii ≥ 0 (nats)")
    if ratio is not None:
        claim = _numbers("ratio", ratio, lambda x: x >= 0, "ratios ≥ 0, and inf (log-ratios go in log_ratio=)")
    else:
        claim = _numbers("log_ratio", log_ratio, lambda x: ~np.isnan(x), "numbers, -inf and inf")
    generator = _compiled(as_divergence(divergence))
    try:
        rows = np.broadcast(log_p, claim, radius)
    except ValueError:
        shapes = f"logp {log_p.shape}, the claim {claim.shape}, delta {radius.shape}"
        raise ValueError(f"shapes that do not broadcast together: {shapes}") from None
    is_log = ratio is None
    made = [_certificate(generator, float(p), Claim(float(x), is_log, tolerance), float(d), sign) for p, x, d in rows]
    if rows.ndim == 0 and not any(isinstance(x, np.ndarray) for x in (logp, ratio, log_ratio, delta)):
        return made[0]
    parts = np.empty(len(made), dtype=object)
    parts[:] = made
    return Certificates(parts.reshape(rows.shape))


def _compiled(divergence: FDivergence) -> BallGenerator:
    try:
        return ball_generator(divergence)
    except (ArithmeticError, TypeError, NotImplementedError, RecursionError, BallError) as error:
        raise DivergenceError(f"{divergence.name!r} has no ball function: {type(error).__name__}: {error}") from error


def _sign(side: str) -> int:
    if not isinstance(side, str) or side not in SIDES:
        raise ValueError(f"side = {side!r} is not accepted; accepted: 'upper', 'lower'")
    return SIDES[side]


def _numbers(name: str, given: ArrayLike | None, accepted: Any, words: str) -> Floats:
    """A float64 array all of whose entries are accepted."""
    try:
        array = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} = {given!r} is not numeric; accepted: {words}") from None
    bad = ~accepted(array)
    if bad.any():
        index = tuple(int(i) for i in np.unravel_index(int(np.argmax(bad)), array.shape))
        where = f" at index {index}" if array.ndim else ""
        raise ValueError(f"{name} = {float(array[index])!r}{where} is not accepted; accepted: {words}")
    return array


def _certificate(generator: BallGenerator, logp: float, claim: Claim, delta: float, sign: int) -> Certificate:
    with precision(SEARCH_BITS):
        search, bracket = enclosed(generator, logp, claim, delta, sign)
        verdict, bracket = verdict_of(search, bracket, claim, sign)
        reach, multiplier, price = dual_reach(search.problem if search else None, bracket, logp, sign)
        low, high = (bracket.low, bracket.high) if sign > 0 else (-bracket.high, -bracket.low)
        logs = (float_below(low), float_above(high))
        ratios = (max(float_below(_exp(low)), 0.0), float_above(_exp(high)))
        dual = sign * reach
        outwards = float_above if sign > 0 else float_below
        return Certificate(
            divergence=generator.divergence.name,
            logp=logp,
            delta=delta,
            side="upper" if sign > 0 else "lower",
            claim=claim.value,
            claim_is_log=claim.is_log,
            tolerance=claim.tolerance,
            verdict=verdict,
            enclosure=ratios,
            log_enclosure=logs,
            dual_bound=max(outwards(_exp(dual)), 0.0),
            log_dual_bound=outwards(dual),
            multiplier=multiplier,
            price=price,
        )


def _exp(y: arb) -> arb:
    """e^y, with the limits."""
    if y.is_finite():
        return y.exp()
    return arb.pos_inf() if y > 0 else arb(0)
