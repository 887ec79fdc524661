"""Clip rules: which interval of ratios a token may move in, given its old probability.

Rule strings: `none`; `clip:ε₋,ε₊` (`clip` is 0.2,0.2, `clip_higher` is 0.2,0.28); `dcpo[:ε₋,ε₊[:CAP]]` (CAP 10 when omitted);
`band:NAME[:PARAM]:δ[:CAP]` and `relaxed:NAME[:PARAM]:δ[:CAP[:ε₋,ε₊]]` (no cap when omitted, ε 0.2,0.28), where NAME is a
catalogue name or an expression in `u`; `table:PATH[:CAP]`, and `table:PATH@δ[:CAP]` for a table of radii.
`parse(str(rule)) == rule`, with every field.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable

from bandtheory.catalogue import BY_NAME
from bandtheory.clip_rules import AdaptiveClip, Band, NoClip, RatioClip, RelaxedBand, Rule, RuleError, TableRule, split_table

__all__ = ["AdaptiveClip", "Band", "NoClip", "RatioClip", "RelaxedBand", "Rule", "RuleError", "TableRule", "parse"]

ALIASES = {"clip": "clip:0.2,0.2", "clip_higher": "clip:0.2,0.28", "dcpo": "dcpo:0.16,0.2", "relaxed": "relaxed:kl:0.05:10"}
_FORMS = (
    "none, clip[:low,high], clip_higher, dcpo[:low,high[:cap]], band:NAME[:PARAM]:delta[:cap], "
    "relaxed[:NAME[:PARAM]:delta[:cap[:low,high]]], table:PATH[@delta][:cap]"
)


def parse(text: str) -> Rule:
    """A rule from its string, such as `"band:kl:0.05:10"`.

    Raises:
        RuleError: an unknown rule (the nearest is suggested) or a parameter that is missing, not a number or out of range.
        DivergenceError, ExpressionError: a band of an unknown or faulty divergence.
        TableError: a file that is missing, damaged or no table.
    """
    if not isinstance(text, str):
        raise RuleError(f"rule must be a string such as 'band:kl:0.05:10', got {type(text).__name__}")
    stripped = text.strip()
    kind, _, rest = ALIASES.get(stripped, stripped).partition(":")
    if kind not in _PARSERS:
        near = difflib.get_close_matches(kind, [*_PARSERS, *ALIASES], n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise RuleError(f"unknown rule {text!r}; {hint}accepted: {_FORMS}")
    return _PARSERS[kind](text, rest)


def _parse_none(text: str, rest: str) -> Rule:
    if rest:
        raise RuleError(f"rule {text!r}: none takes no parameter")
    return NoClip()


def _interval(text: str, rest: str) -> tuple[float, float]:
    parts = rest.split(",")
    if len(parts) != 2:
        raise RuleError(f"rule {text!r}: expected two numbers 'low,high' after the colon, got {rest!r}")
    return _number(text, parts[0]), _number(text, parts[1])


def _band_parameters(text: str, rest: str) -> tuple[str, float, float | None]:
    name, *numbers = rest.split(":")
    family = BY_NAME.get(name.strip())
    form, parameter = "NAME:delta or NAME:delta:cap", ""
    if family is not None and family.parameter is not None:
        form = f"{family.pattern}:delta or {family.pattern}:delta:cap"
        parameter, numbers = (f":{numbers[0]}", numbers[1:]) if numbers else ("", [])
    if not name or not 1 <= len(numbers) <= 2:
        raise RuleError(f"rule {text!r}: expected {form} after the first colon, got {rest!r}")
    return name.strip() + parameter, _number(text, numbers[0]), _number(text, numbers[1]) if len(numbers) == 2 else None


def _parse_adaptive(text: str, rest: str) -> Rule:
    interval, colon, cap = rest.partition(":")
    return AdaptiveClip(*_interval(text, interval), *([_number(text, cap)] if colon else []))


def _parse_relaxed(text: str, rest: str) -> Rule:
    body, colon, interval = rest.rpartition(":")
    if colon and "," in interval:
        return RelaxedBand(*_band_parameters(text, body), *_interval(text, interval))
    return RelaxedBand(*_band_parameters(text, rest))


def _parse_table(text: str, rest: str) -> Rule:
    path, delta, cap = split_table(rest)
    if not path:
        raise RuleError(f"rule {text!r}: expected the path of a table after the colon")
    return TableRule(path, cap, delta)


_PARSERS: dict[str, Callable[[str, str], Rule]] = {
    "none": _parse_none,
    "clip": lambda text, rest: RatioClip(*_interval(text, rest)),
    "dcpo": _parse_adaptive,
    "band": lambda text, rest: Band(*_band_parameters(text, rest)),
    "relaxed": _parse_relaxed,
    "table": _parse_table,
}


def _number(text: str, part: str) -> float:
    try:
        return float(part)
    except ValueError:
        raise RuleError(f"rule {text!r}: {part!r} is not a number") from None
