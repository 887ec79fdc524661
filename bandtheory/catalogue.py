"""The shipped divergences: one declaration each, everything else is derived.

A declaration is text. It holds the generator in the grammar of `bandtheory.expressions`, a title that says which divergence
and which normalisation it is. Limits, saturation, closed forms, the conic program and code
follow from the generator, so a new divergence is one new entry of `DECLARATIONS` and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Declaration:
    """A named f-divergence `D_f(Q‖P) = Σ P f(Q/P)`: its generator `f(u)` as text, and a title for people."""

    name: str
    generator: str
    title: str


DECLARATIONS = (
    Declaration("kl", "-log(u)", "KL(P‖Q), the divergence of the BandPO paper"),
    Declaration("reverse_kl", "u*log(u)", "KL(Q‖P)"),
    Declaration("tv", "abs(u - 1)/2", "total variation, ½ Σ|q − p|"),
    Declaration("pearson_chi2", "(u - 1)**2", "Pearson χ², Σ (q − p)²/p"),
    Declaration("squared_hellinger", "(sqrt(u) - 1)**2", "squared Hellinger, Σ (√q − √p)²"),
)

BY_NAME = {declaration.name: declaration for declaration in DECLARATIONS}


def catalogue() -> tuple[str, ...]:
    """Names of the shipped divergences, in the order of declaration."""
    return tuple(BY_NAME)
