"""Figures of clip rules and of audits, as matplotlib figures that share no state with pyplot.

A rule has the same colour in every figure: that of its family (the divergence of a band, or the kind of another rule); a dash
or hatch tells members of one family apart. p is on a logit axis, logarithmic in p towards 0 and in 1 − p towards 1: the rules
differ most at improbable tokens, of which a linear axis shows nothing, and most tokens are nearly certain.
"""

from __future__ import annotations

import io
import os
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bandtheory.audit_report import AuditReport
    from bandtheory.rules import Rule

FORMATS = ("png", "svg", "pdf")
P_LIMITS = (1e-4, 0.999)
P_TICKS = (1e-4, 1e-3, 0.01, 0.1, 0.5, 0.9, 0.99)
RATIO_LIMITS = (1.0, 30.0)  # of the axis of the upper bound
CHANGE_LIMITS = (1e-5, 1.0)  # of the axes of probability changes
DOTS_PER_INCH = 160

# Okabe and Ito's palette, told apart with any colour vision (https://jfly.uni-koeln.de/color/), less its yellow: too pale.
BLUE, _GREEN, _PURPLE, _SKY, VERMILLION = "#0072B2", "#009E73", "#CC79A7", "#56B4E9", "#D55E00"
BLACK, _ORANGE, GREY = "#000000", "#E69F00", "#999999"
_COLOURS = {
    "none": GREY, "clip": BLACK, "clip_higher": _ORANGE, "dcpo": VERMILLION,
    "kl": BLUE, "tv": _GREEN, "pearson_chi2": _PURPLE, "reverse_kl": _SKY,
}  # fmt: skip
_SPARE = (_SKY, _PURPLE, _GREEN, VERMILLION, BLUE, _ORANGE, BLACK)
_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.6)), (0, (1.2, 1.4)), (0, (6, 1.5, 1.2, 1.5)), (0, (9, 2)), (0, (3, 3)))
_HATCHES = ("", "////", "....", "xxxx", "----", "\\\\\\\\")


class PlotError(ValueError):
    """A figure that cannot be drawn or saved as asked; the message says what is accepted."""


@dataclass(frozen=True)
class Style:
    """How a rule looks: `dash` in line plots, the matching `hatch` in bar charts."""

    colour: str
    dash: Any
    hatch: str


def styles(rules: Sequence[Rule]) -> list[Style]:
    """One style a rule, no two alike among the first several: the colour of its family, and a dash where that is taken."""
    taken: dict[str, int] = {}
    result = []
    for rule in rules:
        colour = _family_colour(rule)
        variant = max(taken.get(colour, 0), 1 if type(rule).__name__ == "RelaxedBand" else 0) % len(_DASHES)
        taken[colour] = variant + 1
        result.append(Style(colour, _DASHES[variant], _HATCHES[variant]))
    return result


def ratio_figure(rules: Iterable[Rule | str]) -> Figure:
    """Upper and lower ratio bounds of each rule against the old probability p.

    The upper bound is on a logarithmic axis, the lower one on a linear axis since it reaches 0. A dotted line marks where the
    new probability would exceed 1.

    Raises:
        PlotError: no rules.
        RuleError, DivergenceError, ExpressionError: as `bandtheory.rules.parse`.
    """
    return _figure(rules, ratio=True, change=False)


def probability_change_figure(rules: Iterable[Rule | str]) -> Figure:
    """The change of probability that each rule allows in one step, `p (upper − 1)` up and `p (1 − lower)` down, against p.

    Both axes are logarithmic. Dotted lines mark the whole room there is: `1 − p` up and `p` down. Raises as `ratio_figure`.
    """
    return _figure(rules, ratio=False, change=True)


def rules_figure(rules: Iterable[Rule | str]) -> Figure:
    """`ratio_figure` and `probability_change_figure` side by side. Raises as `ratio_figure`."""
    return _figure(rules, ratio=True, change=True)


def probabilities() -> NDArray[np.float64]:
    """The values of p in the figures, evenly spaced in logit p."""
    low, high = (np.log(p / (1 - p)) for p in P_LIMITS)
    return 1 / (1 + np.exp(-np.linspace(low, high, 800)))


def _figure(rules: Iterable[Rule | str], ratio: bool, change: bool) -> Figure:
    from matplotlib.ticker import NullLocator

    parsed = _parsed(rules)
    p = probabilities()
    bounds = [rule.log_bounds(np.log(p)) for rule in parsed]
    columns = ratio + change
    figure = new_figure(5.4 if columns == 1 else 9.0, 5.6)
    grid = figure.subplots(2, columns, sharex=True, squeeze=False)
    panels: list[tuple[Axes, Axes]] = [(grid[0, column], grid[1, column]) for column in range(columns)]
    for upper_axes, lower_axes in panels[:ratio]:
        _ratio_panel(upper_axes, lower_axes, p)
    for upper_axes, lower_axes in panels[ratio:]:
        _change_panel(upper_axes, lower_axes, p)
    widths = np.linspace(1.6 + 0.4 * min(len(parsed) - 1, 3), 1.6, len(parsed))  # what lies below shows at the edges
    for rule, style, width, (lower, upper) in zip(parsed, styles(parsed), widths, bounds, strict=True):
        with np.errstate(over="ignore"):
            curves = [(np.exp(upper), np.exp(lower))] * ratio + [(p * np.expm1(upper), -p * np.expm1(lower))] * change
        for pair, both in zip(panels, curves, strict=True):
            for axes, curve in zip(pair, both, strict=True):
                axes.plot(p, curve, linestyle=style.dash, color=style.colour, linewidth=width, label=_label(rule))
    for pair in panels:
        for axes in pair:
            axes.set_xscale("logit")
            axes.set_xlim(*P_LIMITS)
            axes.set_xticks(P_TICKS, [f"{tick:.4g}" for tick in P_TICKS])
            axes.xaxis.set_minor_locator(NullLocator())
            tidy(axes)
        pair[1].set_xlabel("old probability p (logit axis)")
    _legend(figure, grid[0, 0], columns)
    return figure


def _ratio_panel(upper: Axes, lower: Axes, p: NDArray[np.float64]) -> None:
    from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter

    upper.set_title("Ratio bounds", loc="left")
    upper.set_ylabel("upper bound on r")
    upper.set_yscale("log")
    upper.set_ylim(*RATIO_LIMITS)
    upper.yaxis.set_major_locator(FixedLocator([1, 1.2, 1.5, 2, 3, 5, 10, 20]))
    upper.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    upper.yaxis.set_minor_locator(NullLocator())
    lower.set_ylabel("lower bound on r")
    lower.set_ylim(-0.02, 1.02)
    _limit(upper, p, 1 / p, "1/p: the\nwhole simplex", 0.06, (8, 4))
    _limit(lower, p, np.zeros_like(p))


def _change_panel(up: Axes, down: Axes, p: NDArray[np.float64]) -> None:
    up.set_title("Allowed change of probability", loc="left")
    up.set_ylabel("up, p (upper − 1)")
    down.set_ylabel("down, p (1 − lower)")
    for axes in (up, down):
        axes.set_yscale("log")
        axes.set_ylim(*CHANGE_LIMITS)
    _limit(up, p, 1 - p, "1 − p: the whole simplex", 2e-4, (0, -12))
    _limit(down, p, p, "p: all of it", 0.9, (0, -12))


def _limit(
    axes: Axes,
    p: NDArray[np.float64],
    values: NDArray[np.float64],
    text: str = "",
    at: float = 0.5,
    shift: tuple[int, int] = (0, 0),
) -> None:
    """What no rule can exceed, as a dotted line, with a text `shift` points away from the line at p = `at`."""
    axes.plot(p, values, linestyle=(0, (1, 2.5)), color="#666666", linewidth=1.0, zorder=1, label="_limit")
    if text:
        place = (at, float(np.interp(at, p, values)))
        axes.annotate(text, place, shift, textcoords="offset points", va="baseline", fontsize=8.5, color="#555555")


def audit_figure(report: AuditReport) -> Figure:
    """What each rule clipped, by old probability: share of each bin's tokens clipped up and down, and of its mass removed.

    Under each bin stands the number of its tokens, since a share of few tokens says little.
    """
    from matplotlib.ticker import FuncFormatter

    from bandtheory.rules import parse

    rules = [parse(row.rule) for row in report.rules]
    tokens = np.maximum(report.bins.tokens, 1)
    places = np.arange(len(tokens))
    width = 0.84 / len(rules)
    figure = new_figure(9.0, 6.6)
    grid = figure.subplots(3, 1, sharex=True)
    headings = ("Tokens clipped up (gains)", "Tokens clipped down (losses)", "Gradient mass removed")
    for index, (row, rule, style) in enumerate(zip(report.rules, rules, styles(rules), strict=True)):
        shares = (np.divide(row.clipped_up, tokens), np.divide(row.clipped_down, tokens), np.array(row.removed_share_by_bin))
        offset = (index - (len(rules) - 1) / 2) * width
        for axes, share in zip(grid, shares, strict=True):
            axes.bar(
                places + offset, share, 0.94 * width, color=style.colour, hatch=style.hatch, edgecolor="white", linewidth=0,
                label=_label(rule),
            )  # fmt: skip
    for axes, heading in zip(grid, headings, strict=True):
        axes.set_title(heading, loc="left")
        axes.set_ylabel("share of the bin")
        axes.set_ylim(0, max(axes.get_ylim()[1], 1e-3))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:.3g} %"))
        axes.locator_params(axis="y", nbins=5)
        tidy(axes)
        axes.grid(False, axis="x")
        axes.tick_params(axis="x", length=0)
    names = [f"{label}\n{count:,} tokens" for label, count in zip(report.bins.labels, report.bins.tokens, strict=True)]
    grid[-1].set_xticks(places, names)
    grid[-1].set_xlabel("old probability of the token")
    _legend(figure, grid[0], 2)
    return figure


def check_destination(path: str | os.PathLike[str]) -> Path:
    """The path if a figure can be saved there; nothing is written.

    Raises:
        PlotError: a suffix other than png, svg and pdf.
        OSError: no such directory, no permission, or the path is a directory.
    """
    target = Path(path)
    if target.suffix.lower().removeprefix(".") not in FORMATS:
        raise PlotError(f"figure file {str(path)!r} has the suffix {target.suffix!r}; accepted: .png, .svg, .pdf")
    if target.is_dir():
        raise IsADirectoryError(21, "is a directory; accepted: a file name", str(path))
    if not target.parent.is_dir():
        raise NotADirectoryError(20, "no such directory", str(target.parent))
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise PermissionError(13, "no permission to write in this directory", str(target.parent))
    return target


def save(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Write a figure as png, svg or pdf, by suffix: under a temporary name, then renamed. The same figure gives the same bytes.

    Raises as `check_destination`, or OSError where writing fails; then no file is left and an existing one is unchanged.
    """
    target = check_destination(path)
    data = render(figure, target.suffix.lower().removeprefix("."))
    temporary = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        temporary.write_bytes(data)
        temporary.replace(target)
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(path)) from None
    finally:
        temporary.unlink(missing_ok=True)
    return target


def render(figure: Figure, format: str) -> bytes:
    """The bytes of an image file; `format` is png, svg or pdf."""
    import matplotlib

    undated = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "bandtheory"}):
        figure.savefig(buffer, format=format, dpi=DOTS_PER_INCH, metadata=undated[format])
    return buffer.getvalue()


def _parsed(rules: Iterable[Rule | str]) -> list[Rule]:
    from bandtheory.rules import parse

    given = [rules] if isinstance(rules, str) else rules
    parsed = list(dict.fromkeys(parse(rule) if isinstance(rule, str) else rule for rule in given))
    if not parsed:
        raise PlotError("rules is empty; accepted: at least one rule, such as 'clip:0.2,0.28'")
    return parsed


def _family_colour(rule: Rule) -> str:
    kind = str(rule).partition(":")[0]
    name = getattr(rule, "divergence", kind)
    if kind == "clip" and getattr(rule, "low", 0) != getattr(rule, "high", 0):
        name = "clip_higher"
    return _COLOURS.get(name) or _SPARE[sum(name.encode()) % len(_SPARE)]


def _label(rule: Rule) -> str:
    return textwrap.shorten(str(rule), 48, placeholder=" …")


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of a size in inches, for files."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def tidy(axes: Axes) -> None:
    """Grid, spines and letters of all figures."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(True, color="#e3e3e3", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.title.set_fontsize(11)
    axes.tick_params(labelsize=9)


def _legend(figure: Figure, axes: Axes, columns: int) -> None:
    """One legend above all panels, in the order of the rules."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="outside upper left",
        ncols=min(len(labels), 2 * columns),
        frameon=False,
        fontsize=9.5,
        handlelength=2.6,
    )
