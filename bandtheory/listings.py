"""What `bandtheory list`, `derive` and `bounds` show, as plain data for JSON and as tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType

    from bandtheory.derivation import Derivation
    from bandtheory.divergence import FDivergence


WIDE = 100  # columns of a terminal from which everything is shown


def summary(found: FDivergence) -> dict[str, Any]:
    """One divergence of the list: name, title, generator, parameter, the two limits, and whether a closed form was found."""
    from bandtheory.catalogue import find
    from bandtheory.closed_form_search import closed_form

    shipped = find(found.name)
    parameter = shipped[0].parameter if shipped else None

    return {
        "name": found.name,
        "title": found.title,
        "generator": found.expression,
        "parameter": parameter and {"name": parameter.name, "symbol": parameter.symbol, "accepted": parameter.accepted},
        "value_at_zero": float(found.value_at_zero),
        "recession_slope": float(found.recession_slope),
        "closed_form": closed_form(found) is not None,
    }


def list_table(rows: Sequence[dict[str, Any]], width: int) -> RenderableType:
    """The rows of `summary`; titles and parameters only where there are columns for them."""
    from rich.table import Table
    from rich.text import Text

    wide = width >= WIDE
    table = Table()
    for heading in ("name", "title", "f(u)", "parameter") if wide else ("name", "f(u)"):
        table.add_column(heading, no_wrap=heading == "name", overflow="fold")  # the name is what one has to type
    for heading in ("f(0)", "f'(∞)"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("closed form", no_wrap=True)
    for row in rows:
        limits = (f"{row[key]:.6g}".replace("inf", "∞") for key in ("value_at_zero", "recession_slope"))
        parameter = row["parameter"]["accepted"] if row["parameter"] else ""
        words = (row["name"], row["title"], row["generator"], parameter) if wide else (row["name"], row["generator"])
        found = "found" if row["closed_form"] else "none: a root" if wide else "no"
        table.add_row(*map(Text, (*words, *limits, found)))
    return table


def bounds_table(band: dict[str, Any], evidence: str, rows: Sequence[dict[str, float]], width: int) -> RenderableType:
    """Bounds per old probability; `band` names `divergence`, `delta` and `max_ratio`; log-ratios where there is room."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    cap = "" if band["max_ratio"] == math.inf else f", upper bound capped at {band['max_ratio']:g}"
    title = Text(f"band of {band['divergence']}, δ = {band['delta']:g} nats{cap}", style="table.title")
    table = Table(title=title, title_justify="left")
    headings = {"p": "p", "logp": "log p", "lower": "lower", "upper": "upper"}
    if width >= WIDE:
        headings |= {"log_lower": "log lower", "log_upper": "log upper"}
    for heading in headings.values():
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        digits = {key: 6 if key in ("p", "logp") else 10 for key in headings}
        table.add_row(*(f"{row[key]:.{digits[key]}g}" for key in headings))
    return Group(table, Text(f"evidence: {evidence}"))


def derivation_dict(derivation: Derivation) -> dict[str, Any]:
    """The statements of a derivation as text in sympy's notation, and all of it as LaTeX."""

    def text(value: Any) -> str | None:
        return None if value is None else str(value).replace("oo", "inf")

    found, limits = derivation.divergence, derivation.limits
    return {
        "name": found.name,
        "title": found.title,
        "generator": text(found.generator),
        "value_at_zero": text(limits.value_at_zero),
        "recession_slope": text(limits.recession_slope),
        "constraint": {"left": text(derivation.constraint.lhs), "right": text(derivation.constraint.rhs)},
        "saturation": {"upper": text(derivation.saturation.upper), "lower": text(derivation.saturation.lower)},
        "limits": {"mass_at_zero": text(limits.mass_at_zero), "lower_at_one": text(limits.lower_at_one)},
        "closed_form": derivation.form is not None,
        "upper": text(derivation.upper),
        "lower": text(derivation.lower),
        "latex": derivation.latex(),
    }
