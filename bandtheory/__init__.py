"""bandtheory: verified trust regions for reinforcement learning of language models.

Importing this package loads numpy only; each public name brings in what it needs when first used.
"""

from __future__ import annotations

import importlib
import sys
import types
from typing import TYPE_CHECKING, Any

from bandtheory._version import __version__

if TYPE_CHECKING:
    from bandtheory.bounds import Bounds, bounds, log_bounds
    from bandtheory.catalogue import catalogue
    from bandtheory.derivation import Derivation, derive
    from bandtheory.divergence import FDivergence, divergence
    from bandtheory.evidence.certificate import Certificate, Certificates, certify
    from bandtheory.evidence.convex import ConvexSolution, solve_convex
    from bandtheory.evidence.verification import VerificationReport, verify

_HOME = {
    "Bounds": "bounds",
    "bounds": "bounds",
    "log_bounds": "bounds",
    "catalogue": "catalogue",
    "Derivation": "derivation",
    "derive": "derivation",
    "FDivergence": "divergence",
    "divergence": "divergence",
    "Certificate": "evidence.certificate",
    "Certificates": "evidence.certificate",
    "certify": "evidence.certificate",
    "ConvexSolution": "evidence.convex",
    "solve_convex": "evidence.convex",
    "VerificationReport": "evidence.verification",
    "verify": "evidence.verification",
}

__all__ = [
    "Bounds",
    "Certificate",
    "Certificates",
    "ConvexSolution",
    "Derivation",
    "FDivergence",
    "VerificationReport",
    "__version__",
    "bounds",
    "catalogue",
    "certify",
    "derive",
    "divergence",
    "log_bounds",
    "solve_convex",
    "verify",
]


class _Package(types.ModuleType):
    """A module whose public names stay the public objects.

    `bandtheory.bounds` is a function and a submodule of the same name. Importing the submodule would bind it over the function;
    here it does not, and `from bandtheory.bounds import …` still finds the submodule.
    """

    def __getattr__(self, name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module 'bandtheory' has no attribute {name!r}")
        value = getattr(importlib.import_module(f"bandtheory.{_HOME[name]}"), name)
        super().__setattr__(name, value)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOME and isinstance(value, types.ModuleType)):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted(__all__)


sys.modules[__name__].__class__ = _Package
