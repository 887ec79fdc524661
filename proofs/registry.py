"""Every statement, in the order in which it is reported: the theorems by number, what holds over boxes, the closed forms.

A module belongs here if it has a function `statements() -> list[Statement]`. Building them is cheap; what is costly happens in
`Statement.prove`.
"""

from __future__ import annotations

import difflib
import functools
import importlib
from collections.abc import Iterable

from proofs.statement import Statement

MODULES = (
    "theorem_01_reduction",
    "theorem_02_shape_in_ratio",
    "theorem_03_shape_in_probability",
    "theorem_04_shape_in_radius",
    "theorem_05_mirror",
    "theorem_06_saturation",
    "theorem_07_limits",
    "theorem_07_limits_of_catalogue",
    "theorem_08_exploration",
    "theorem_09_gradient",
    "theorem_10_ratio_clip",
    "theorem_11_nesting",
    "inequalities",
    "closed_forms",
)


class SelectionError(ValueError):
    """A selection that no statement has in its name."""


@functools.cache
def all_statements() -> dict[str, Statement]:
    """The statements by name.

    Raises:
        ImportError: z3 is missing; names the extra to install.
        ValueError: two statements of the same name.
    """
    found: dict[str, Statement] = {}
    for name in MODULES:
        try:
            module = importlib.import_module(f"proofs.{name}")
        except ModuleNotFoundError as error:
            if error.name != "z3":
                raise
            raise ImportError(
                "z3-solver is missing; install bandtheory[proofs], in a checkout: pip install '.[proofs]'"
            ) from None
        for statement in module.statements():
            if statement.name in found:
                raise ValueError(f"two statements are named {statement.name!r}, the second in proofs/{name}.py")
            found[statement.name] = statement
    return found


def select(parts: Iterable[str]) -> list[str]:
    """The names that contain one of the given texts, in the order of the registry; all names if none is given.

    Raises:
        SelectionError: a text that is in no name.
    """
    names = list(all_statements())
    wanted = [part.casefold() for part in parts]
    for part in wanted:
        if not any(part in name.casefold() for name in names):
            near = difflib.get_close_matches(part, names, n=1, cutoff=0.3)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise SelectionError(f"no statement has {part!r} in its name{hint} (--list shows them)")
    return [name for name in names if not wanted or any(part in name.casefold() for part in wanted)]
