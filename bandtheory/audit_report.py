"""What an audit found, as plain data, JSON and tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table


@dataclass(frozen=True)
class Bins:
    """The audited tokens by probability under the old policy: bin `i` is `[edges[i], edges[i + 1])`, the last one closed.

    Attributes:
        edges: bin edges, one more than bins.
        tokens: valid tokens in each bin.
        mass: policy-gradient mass in each bin, before any clipping.
    """

    edges: tuple[float, ...]
    tokens: tuple[int, ...]
    mass: tuple[float, ...]

    @property
    def labels(self) -> tuple[str, ...]:
        last = len(self.tokens) - 1
        pairs = zip(self.edges[:-1], self.edges[1:], strict=True)
        return tuple(f"[{low:g}, {high:g}{']' if i == last else ')'}" for i, (low, high) in enumerate(pairs))


@dataclass(frozen=True)
class RuleAudit:
    """One rule on all tokens; tuples have one entry a bin of `bins`.

    Attributes:
        rule: the rule string.
        bins: the audited tokens, the same for all rules of a report.
        clipped_up: tokens with `A > 0` and `r > upper`.
        clipped_down: tokens with `A < 0` and `r < lower`.
        removed_up, removed_down: policy-gradient mass of those tokens.
        widest_upper, tightest_upper: largest and smallest upper bound of any valid token, as a ratio.
        widest_lower, tightest_lower: smallest and largest lower bound, as a ratio.
    """

    rule: str
    bins: Bins
    clipped_up: tuple[int, ...]
    clipped_down: tuple[int, ...]
    removed_up: tuple[float, ...]
    removed_down: tuple[float, ...]
    widest_upper: float
    tightest_upper: float
    widest_lower: float
    tightest_lower: float

    @property
    def up_fraction(self) -> float:
        """Share of the valid tokens clipped up."""
        return sum(self.clipped_up) / sum(self.bins.tokens)

    @property
    def down_fraction(self) -> float:
        """Share of the valid tokens clipped down."""
        return sum(self.clipped_down) / sum(self.bins.tokens)

    @property
    def clip_fraction(self) -> float:
        return self.up_fraction + self.down_fraction

    @property
    def clip_fraction_by_bin(self) -> tuple[float, ...]:
        """Share of each bin's tokens that is clipped; 0 in an empty bin."""
        return _shares(np.add(self.clipped_up, self.clipped_down), self.bins.tokens)

    @property
    def removed_share(self) -> float:
        """Share of the policy-gradient mass removed; 0 if there is no mass."""
        return _shares([sum(self.removed_up) + sum(self.removed_down)], [sum(self.bins.mass)])[0]

    @property
    def removed_share_by_bin(self) -> tuple[float, ...]:
        """Share of each bin's own mass that is removed; 0 in a bin without mass."""
        return _shares(np.add(self.removed_up, self.removed_down), self.bins.mass)


@dataclass(frozen=True)
class AuditReport:
    """The audit of one source under several rules; prints as tables.

    Attributes:
        source: path of the file, or "arrays".
        shape: of the token arrays.
        bins: valid tokens and their mass by old probability.
        beyond_clamp: valid tokens with `|log r| > 20`, which have no gradient in `policy_loss`.
        rules: one row a rule, in the order asked for.
    """

    source: str
    shape: tuple[int, ...]
    bins: Bins
    beyond_clamp: int
    rules: tuple[RuleAudit, ...]

    @property
    def tokens(self) -> int:
        """Number of valid tokens."""
        return sum(self.bins.tokens)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; an infinite ratio is the string "inf"."""
        return {
            "source": self.source,
            "shape": list(self.shape),
            "tokens": self.tokens,
            "beyond_clamp": self.beyond_clamp,
            "mass": sum(self.bins.mass),
            "bins": {"edges": list(self.bins.edges), "tokens": list(self.bins.tokens), "mass": list(self.bins.mass)},
            "rules": [_rule_dict(row) for row in self.rules],
        }

    def tables(self) -> list[Table]:
        """Rich tables: the rules; then tokens clipped and mass removed by old probability."""
        return _tables(self)

    def __rich__(self) -> RenderableType:
        from rich.console import Group

        return Group(*self.tables())

    def __str__(self) -> str:
        from rich.console import Console

        text = StringIO()
        Console(file=text, width=140, color_system=None).print(self)
        return text.getvalue()


def _rule_dict(row: RuleAudit) -> dict[str, Any]:
    bounds = ("widest_upper", "tightest_upper", "widest_lower", "tightest_lower")
    arrays = ("clipped_up", "clipped_down", "removed_up", "removed_down", "clip_fraction_by_bin", "removed_share_by_bin")
    scalars = ("up_fraction", "down_fraction", "clip_fraction", "removed_share")
    result: dict[str, Any] = {"rule": row.rule}
    result |= {name: getattr(row, name) for name in scalars}
    result |= {name: value if np.isfinite(value := getattr(row, name)) else str(value) for name in bounds}
    return result | {name: list(getattr(row, name)) for name in arrays}


def _shares(parts: ArrayLike, wholes: ArrayLike) -> tuple[float, ...]:
    part, whole = np.asarray(parts, np.float64), np.asarray(wholes, np.float64)
    return tuple(np.divide(part, whole, out=np.zeros_like(part), where=whole > 0).tolist())


def _tables(report: AuditReport) -> list[Table]:
    def clipped(row: RuleAudit, i: int) -> str:
        return f"{row.clipped_up[i]:,} + {row.clipped_down[i]:,}"

    def removed(row: RuleAudit, i: int) -> str:
        return _percent(row.removed_share_by_bin[i])

    return [
        _summary(report),
        _by_bin(report, "Tokens clipped, up + down", clipped),
        _by_bin(report, "Share of the bin's policy-gradient mass removed", removed),
    ]


def _summary(report: AuditReport) -> Table:
    from rich.table import Table
    from rich.text import Text

    shape = " × ".join(str(n) for n in report.shape)
    title = Text(f"{report.source}: {report.tokens:,} valid tokens of {shape}", style="table.title")
    table = Table(title=title, title_justify="left")
    table.add_column("rule", no_wrap=True)
    for heading in ("clipped up", "clipped down", "mass removed", "upper, tightest to widest", "lower, tightest to widest"):
        table.add_column(heading, justify="right")
    for row in report.rules:
        table.add_row(
            Text(row.rule),
            f"{sum(row.clipped_up):,} ({_percent(row.up_fraction)})",
            f"{sum(row.clipped_down):,} ({_percent(row.down_fraction)})",
            _percent(row.removed_share),
            f"{row.tightest_upper:.4g} to {row.widest_upper:.4g}",
            f"{row.tightest_lower:.4g} to {row.widest_lower:.4g}",
        )
    if report.beyond_clamp:
        table.caption = f"{report.beyond_clamp:,} tokens have |log ratio| > 20 and no gradient under any rule"
    return table


def _by_bin(report: AuditReport, title: str, cell: Callable[[RuleAudit, int], str]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left")
    table.add_column("old probability", no_wrap=True)
    table.add_column("tokens", justify="right")
    for row in report.rules:
        table.add_column(Text(row.rule), justify="right")
    for i, label in enumerate(report.bins.labels):
        table.add_row(Text(label), f"{report.bins.tokens[i]:,}", *(cell(row, i) for row in report.rules))
    return table


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"
