"""Radius schedules."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bandtheory.rules import RuleError, parse
from bandtheory.schedules import SHAPES, Schedule, parse_schedule


@pytest.mark.parametrize(
    ("text", "step", "delta"),
    [
        ("schedule:linear:0.01:100:band:kl:0.11", 50, 0.06),
        ("schedule:cosine:0.01:100:band:kl:0.11", 25, 0.01 + 0.1 * (1 + math.cos(math.pi / 4)) / 2),
        ("schedule:polynomial^2:0.01:100:band:kl:0.11:10", 50, 0.01 + 0.1 * 0.25),
        ("schedule:linear:0.2:10:relaxed:tv:0.1:10", 5, 0.15),
    ],
)
def test_radius_by_formula_and_ends(text: str, step: int, delta: float) -> None:
    schedule = parse_schedule(text)
    assert schedule.delta(step) == pytest.approx(delta, rel=1e-14)
    assert schedule.at(0) == schedule.rule
    assert schedule.delta(schedule.steps) == schedule.delta(10 * schedule.steps) == schedule.end
    assert type(schedule.at(step)) is type(schedule.rule)
    assert schedule.at(step).max_ratio == schedule.rule.max_ratio  # type: ignore[union-attr]


@given(
    st.sampled_from(SHAPES),
    st.floats(1e-4, 1),
    st.floats(1e-4, 1),
    st.integers(1, 10**6),
    st.floats(0.1, 5),
    st.integers(0, 10**6),
)
def test_radius_stays_between_its_ends_and_a_string_keeps_everything(shape, start, end, steps, power, step) -> None:
    power = power if shape == "polynomial" else 1.0
    schedule = Schedule(parse(f"band:kl:{start!r}"), end, steps, shape, power)  # type: ignore[arg-type]
    assert parse_schedule(str(schedule)) == schedule
    assert min(start, end) * (1 - 1e-15) <= schedule.delta(step) <= max(start, end) * (1 + 1e-15)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("band:kl:0.05", "SHAPE"),
        ("schedule:linear:0.01:100:clip", "no radius"),
        ("schedule:step:0.01:100:band:kl:0.1", "shape"),
        ("schedule:polynomial:0.01:100:band:kl:0.1", "POWER"),
        ("schedule:polynomial^-1:0.01:100:band:kl:0.1", "power"),
        ("schedule:linear:-1:100:band:kl:0.1", "end"),
        ("schedule:linear:0.01:0:band:kl:0.1", "steps"),
        ("schedule:linear:0.01:1.5:band:kl:0.1", "1.5"),
        ("schedule:linear:x:10:band:kl:0.1", "x"),
        ("schedule:linear:0.01:10:band:nothing:0.1", "nothing"),
    ],
)
def test_what_is_wrong_is_named(text: str, named: str) -> None:
    with pytest.raises(ValueError, match=named.replace("^", r"\^")):
        parse_schedule(text)


def test_a_step_before_the_first_is_refused() -> None:
    with pytest.raises(RuleError, match="step = -1"):
        parse_schedule("schedule:linear:0.01:100:band:kl:0.1").delta(-1)
