"""The figures: curves are the bounds, bars are the audit, a rule keeps its colour, and files appear whole or not at all."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from bandtheory.audit import AuditReport, audit
from bandtheory.plots import (
    PlotError,
    audit_figure,
    check_destination,
    probabilities,
    probability_change_figure,
    ratio_figure,
    render,
    rules_figure,
    save,
    styles,
)
from bandtheory.rules import RuleError, parse

RULES = ("clip", "clip_higher", "dcpo", "band:tv:0.05", "band:kl:0.05:10")


def curve(axes: Axes, rule: str) -> Line2D:
    (found,) = [line for line in axes.lines if line.get_label() == str(parse(rule))]
    return found


def values(axes: Axes, rule: str) -> tuple[np.ndarray, np.ndarray]:
    line = curve(axes, rule)
    return np.asarray(line.get_xdata()), np.asarray(line.get_ydata())


@pytest.fixture(scope="module")
def ratios() -> Figure:
    return ratio_figure(RULES)


@pytest.fixture(scope="module")
def changes() -> Figure:
    return probability_change_figure(RULES)


@pytest.fixture(scope="module")
def report() -> AuditReport:
    """p = ½ five times: r = 1.5 with A = 2 (above 1.2), r = ½ with A = −1 (below 0.8), and r = 1 three times."""
    old = np.full(5, math.log(0.5))
    new = old + np.log([1.5, 0.5, 1, 1, 1])
    return audit({"old_logp": old, "new_logp": new, "advantage": np.array([2.0, -1, 1, 1, 1])}, ["clip", "none"])


@pytest.mark.parametrize("rule", RULES)
def test_ratio_curves_are_the_bounds_of_the_rule(ratios: Figure, rule: str) -> None:
    for axes, side in zip(ratios.axes, ("upper", "lower"), strict=True):
        p, drawn = values(axes, rule)
        np.testing.assert_array_equal(drawn, np.exp(getattr(parse(rule).log_bounds(np.log(p)), side)))


@pytest.mark.parametrize("rule", RULES)
def test_change_curves_are_p_times_the_distance_of_the_bounds_from_one(changes: Figure, rule: str) -> None:
    up, down = changes.axes
    p, increase = values(up, rule)
    _, decrease = values(down, rule)
    lower, upper = parse(rule).log_bounds(np.log(p))
    np.testing.assert_allclose(increase, p * (np.exp(upper) - 1), rtol=1e-12)
    np.testing.assert_allclose(decrease, p * (1 - np.exp(lower)), rtol=1e-12)


def test_a_fixed_clip_allows_a_change_proportional_to_p_and_tv_the_same_change_everywhere(changes: Figure) -> None:
    """ε p with ε = 0.2, and min(δ, 1 − p) with δ = 0.05."""
    p, clip = values(changes.axes[0], "clip")
    np.testing.assert_allclose(clip, 0.2 * p, rtol=1e-12)
    np.testing.assert_allclose(values(changes.axes[0], "band:tv:0.05")[1], np.minimum(0.05, 1 - p), rtol=1e-9)


def test_the_probability_axis_reaches_down_to_a_ten_thousandth_on_a_logit_scale(ratios: Figure) -> None:
    p = probabilities()
    assert (p[0], p[-1]) == pytest.approx((1e-4, 0.999), rel=1e-12)
    assert all(axes.get_xscale() == "logit" for axes in ratios.axes)
    assert "logit" in ratios.axes[1].get_xlabel()


def test_both_figures_side_by_side_hold_the_same_curves(ratios: Figure, changes: Figure) -> None:
    both = rules_figure(RULES)
    assert len(both.axes) == 4
    for index, single in ((0, ratios.axes[0]), (2, ratios.axes[1]), (1, changes.axes[0]), (3, changes.axes[1])):
        for rule in RULES:
            np.testing.assert_array_equal(values(both.axes[index], rule)[1], values(single, rule)[1])


def test_the_legend_names_every_rule_once_and_nothing_else(ratios: Figure) -> None:
    (legend,) = ratios.legends
    assert [text.get_text() for text in legend.get_texts()] == [str(parse(rule)) for rule in RULES]


def test_a_rule_asked_for_twice_is_drawn_once() -> None:
    figure = ratio_figure(["clip", "clip:0.2,0.2"])
    assert len(figure.legends[0].get_texts()) == 1


def test_a_rule_has_the_same_colour_in_every_figure_whatever_the_order(report: AuditReport) -> None:
    lines = ratio_figure(["band:kl:0.05", "none", "clip"]).axes[0]
    bars = {bar.get_label(): bar for bar in audit_figure(report).axes[0].containers}
    for rule, name in (("clip", "clip:0.2,0.2"), ("none", "none")):
        bar = bars[name]
        assert isinstance(bar, BarContainer)
        assert to_hex(bar.patches[0].get_facecolor()) == to_hex(curve(lines, rule).get_color())


def test_members_of_one_family_share_the_colour_and_differ_in_dash_and_hatch() -> None:
    family = styles([parse(rule) for rule in ("band:kl:0.05", "band:kl:0.01", "relaxed:kl:0.05", "band:kl:0.1")])
    assert len({style.colour for style in family}) == 1
    assert len({style.dash for style in family}) == len({style.hatch for style in family}) == 4


def test_the_default_rules_have_different_colours() -> None:
    assert len({style.colour for style in styles([parse(rule) for rule in RULES])}) == len(RULES)


def test_no_rules_is_an_error_that_says_what_is_accepted() -> None:
    with pytest.raises(PlotError, match="rules is empty; accepted: at least one rule"):
        ratio_figure([])


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(RuleError, match="did you mean 'clip'"):
        rules_figure(["clap"])


def test_audit_bars_are_the_shares_of_each_bin(report: AuditReport) -> None:
    """In [0.4, 0.6): 1 of 5 up, 1 of 5 down; mass 2·1.5 + ½ of 3 + ½ + 3 is 3.5/6.5."""
    expected = (1 / 5, 1 / 5, 3.5 / 6.5)
    for axes, share in zip(audit_figure(report).axes, expected, strict=True):
        clip, none = axes.containers
        heights = [patch.get_height() for patch in clip.patches]  # type: ignore[union-attr]
        assert heights == pytest.approx([0, 0, 0, 0, share, 0, 0])
        assert [patch.get_height() for patch in none.patches] == [0] * 7  # type: ignore[union-attr]


def test_each_bin_carries_its_number_of_tokens(report: AuditReport) -> None:
    labels = [text.get_text() for text in audit_figure(report).axes[-1].get_xticklabels()]
    assert labels[4] == "[0.4, 0.6)\n5 tokens"
    assert labels[0] == "[0, 0.01)\n0 tokens"


@pytest.mark.parametrize(("format", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_the_suffix_decides_the_format(ratios: Figure, tmp_path: Path, format: str, magic: bytes) -> None:
    assert save(ratios, tmp_path / f"a.{format}").read_bytes().startswith(magic)
    assert [path.name for path in tmp_path.iterdir()] == [f"a.{format}"]


def test_the_same_rules_give_the_same_bytes() -> None:
    assert render(ratio_figure(["clip"]), "svg") == render(ratio_figure(["clip"]), "svg")


@pytest.mark.parametrize("name", ["a.gif", "a", "png"])
def test_an_unknown_suffix_names_the_accepted_ones(tmp_path: Path, name: str) -> None:
    with pytest.raises(PlotError, match=r"accepted: \.png, \.svg, \.pdf"):
        check_destination(tmp_path / name)


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotADirectoryError, match="no such directory"):
        check_destination(tmp_path / "missing" / "a.png")


def test_a_directory_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "a.png").mkdir()
    with pytest.raises(IsADirectoryError):
        check_destination(tmp_path / "a.png")


def test_a_directory_without_permission_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(PermissionError, match="no permission to write in this directory"):
        check_destination(tmp_path / "a.png")


def test_a_failed_write_keeps_the_old_file_and_leaves_no_other(
    ratios: Figure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "a.svg"
    target.write_text("old")

    def full(path: Path, data: bytes) -> int:
        with path.open("wb") as file:
            file.write(data[:10])
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*a\.svg'"):
        save(ratios, target)
    assert [path.name for path in tmp_path.iterdir()] == ["a.svg"]
    assert target.read_text() == "old"


def test_no_figure_touches_pyplot() -> None:
    drawing = "from bandtheory.plots import *; render(rules_figure(['clip']), 'png')"
    code = f"{drawing}; import sys; print('matplotlib.pyplot' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
