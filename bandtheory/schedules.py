"""Radius schedules: a rule whose radius changes with the training step.

    schedule = parse_schedule("schedule:cosine:0.01:1000:band:kl:0.1:10")   # kl, from 0.1 to 0.01 nats in 1000 steps
    policy_loss(..., rule=schedule.at(step), evaluation="implicit")

A schedule string is `schedule:SHAPE:END:STEPS:RULE`, where SHAPE is `linear`, `cosine` or `polynomial^POWER`, END the last
radius in nats, and RULE the rule of step 0, which has a radius: a band, a relaxed band, or a table of radii, `table:PATH@δ`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from bandtheory.clip_rules import Band, RelaxedBand, RuleError, TableRule
from bandtheory.rules import Rule, parse

SHAPES = ("linear", "cosine", "polynomial")
_FORM = "schedule:SHAPE:END:STEPS:RULE with SHAPE linear, cosine or polynomial^POWER"


@dataclass(frozen=True)
class Schedule:
    """The radius goes from that of `rule`, δ₀, to `end`, δ₁, in `steps` steps, and stays there. With u = min(step/steps, 1):

    - linear: `δ₀ + (δ₁ − δ₀) u`
    - cosine: `δ₁ + (δ₀ − δ₁) (1 + cos πu)/2`
    - polynomial: `δ₁ + (δ₀ − δ₁) (1 − u)^power`

    Attributes:
        rule: of step 0.
        end: last radius, nats, ≥ 0.
        steps: after which it is reached, ≥ 1.
        shape: "linear", "cosine" or "polynomial".
        power: of the polynomial, > 0.
    """

    rule: Band | RelaxedBand | TableRule
    end: float
    steps: int
    shape: str = "linear"
    power: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.rule, Band | RelaxedBand | TableRule) or self.rule.delta is None:
            accepted = "band, relaxed, table:PATH@DELTA"
            raise RuleError(f"Schedule: rule = {str(self.rule)!r} has no radius to change; accepted: {accepted}")
        for name, good, accepted in (
            ("end", 0 <= self.end < math.inf, "a finite radius ≥ 0 (nats)"),
            ("steps", isinstance(self.steps, int) and self.steps >= 1, "an integer ≥ 1"),
            ("shape", self.shape in SHAPES, ", ".join(SHAPES)),
            ("power", 0 < self.power < math.inf, "a finite number > 0"),
        ):
            if not good:
                raise RuleError(f"Schedule: {name} = {getattr(self, name)!r} is not accepted; accepted: {accepted}")
        if isinstance(self.rule, TableRule):
            replace(self.rule, delta=self.end)  # refused where the table has no such radius

    def delta(self, step: int) -> float:
        """The radius at a step ≥ 0, nats."""
        if not step >= 0:
            raise RuleError(f"Schedule: step = {step!r} is not accepted; accepted: a number ≥ 0")
        start, done = self.rule.delta, min(step / self.steps, 1.0)
        assert start is not None
        if done == 1:
            return self.end
        left = {
            "linear": 1 - done,
            "cosine": (1 + math.cos(math.pi * done)) / 2,
            "polynomial": (1 - done) ** self.power,
        }[self.shape]
        return start if left == 1 else self.end + (start - self.end) * left

    def at(self, step: int) -> Rule:
        """The rule at a step."""
        return replace(self.rule, delta=self.delta(step))

    def __str__(self) -> str:
        shape = f"polynomial^{self.power!r}" if self.shape == "polynomial" else self.shape
        return f"schedule:{shape}:{self.end!r}:{self.steps}:{self.rule}"


def parse_schedule(text: str) -> Schedule:
    """A schedule from its string; `parse_schedule(str(schedule)) == schedule`.

    Raises:
        RuleError: not of the form above, or a part that is not accepted.
    """
    parts = text.strip().split(":", 4) if isinstance(text, str) else []
    if len(parts) != 5 or parts[0] != "schedule":
        raise RuleError(f"schedule {text!r} is not accepted; accepted: {_FORM}")
    _, shape, end, steps, rule = parts
    name, mark, power = shape.partition("^")
    if bool(mark) != (name == "polynomial"):
        raise RuleError(f"schedule {text!r}: shape {shape!r} is not accepted; accepted: linear, cosine, polynomial^POWER")
    try:
        numbers: dict[str, Any] = {"end": float(end), "steps": int(steps), "power": float(power) if mark else 1.0}
    except ValueError as error:
        raise RuleError(f"schedule {text!r}: {error}; accepted: {_FORM}") from None
    return Schedule(parse(rule), shape=name, **numbers)  # type: ignore[arg-type]  # checked there
