"""The figure of a comparison: what every rule did, step by step, with its uncertainty over seeds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bandtheory.plots import styles
from bandtheory.rules import parse
from trainer.statistics import Array, pointwise_band

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from trainer.compare import Comparison

# (title, the curves that are added up, logarithmic axis). With a coin the accuracy is constant and says nothing.
PANELS = {
    "correct": (
        ("entropy (nats)", ("entropy",), True),
        ("accuracy", ("accuracy",), False),
        ("clipped samples", ("clipped_up", "clipped_down"), False),
    ),
    "coin": (
        ("entropy (nats)", ("entropy",), False),
        ("samples clipped up (gains)", ("clipped_up",), False),
        ("samples clipped down (losses)", ("clipped_down",), False),
    ),
}


def draw(comparison: Comparison) -> Figure:
    """One row of panels per learning rate: means over seeds, with 95 % bootstrap bands."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, ScalarFormatter

    config = comparison.config
    panels = PANELS[config.reward]
    figure = Figure(figsize=(4.4 * len(panels), 2.9 * len(config.learning_rates) + 0.7), layout="constrained")
    grid = figure.subplots(len(config.learning_rates), len(panels), squeeze=False)
    for rate, line in enumerate(grid):
        for axes, (title, names, logarithmic) in zip(line, panels, strict=True):
            _panel(axes, comparison, names, rate)
            axes.set_yscale("log" if logarithmic else "linear")
            if config.reward == "correct":
                axes.set_xscale("symlog", linthresh=10)  # nearly everything happens in the first steps
                axes.xaxis.set_major_locator(FixedLocator([0, 2, 4, 6, 8, 10, 20, 50, 100, 200, 500, 1000]))
                axes.xaxis.set_major_formatter(ScalarFormatter())
            axes.set_title(f"{title}, learning rate {config.learning_rates[rate]:g}", fontsize=10)
    for axes in grid[-1]:
        axes.set_xlabel("step" if config.reward == "coin" else "step (logarithmic from 10 on)")
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=len(config.rules), fontsize=9)
    return figure


def _panel(axes: Axes, comparison: Comparison, names: tuple[str, ...], rate: int) -> None:
    """Every rule's curve of one metric at one learning rate."""
    looks = styles([parse(rule) for rule in comparison.config.rules])  # as in every other figure of the project
    for index, (rule, look) in enumerate(zip(comparison.config.rules, looks, strict=True)):
        curve: Array = sum((comparison.curve(name, index, rate) for name in names), np.zeros(1))
        # Clip fractions belong to steps 1, 2, …; policy metrics also have the initial policy at 0.
        steps = np.arange(len(curve)) + (len(curve) == comparison.config.steps)
        axes.plot(steps, curve.mean(-1), linestyle=look.dash, color=look.colour, label=rule, linewidth=1.4)
        axes.fill_between(steps, *pointwise_band(curve, comparison.config.seed), color=look.colour, alpha=0.18, linewidth=0)
    axes.grid(alpha=0.3, linewidth=0.5)
    axes.margins(x=0.01)
