"""Every theorem is proved. The limits of the catalogue are sampled here; `python -m proofs` runs all."""

from __future__ import annotations

import importlib

import pytest

from proofs.registry import MODULES
from proofs.statement import Method, Statement, Status

SECONDS = 60.0
SAMPLED = ("kl", "reverse_kl", "tv", "squared_hellinger", "vajda:3", "renyi:0.5", "hockey_stick:2")


def _statements(number: int) -> list[Statement]:
    modules = [module for module in MODULES if module.startswith(f"theorem_{number:02d}_")]
    found = [statement for module in modules for statement in importlib.import_module(f"proofs.{module}").statements()]
    return [
        statement
        for statement in found
        if "derived limits" not in statement.name or statement.name.rpartition(" ")[2] in SAMPLED
    ]


@pytest.mark.parametrize("number", range(1, 12))
def test_each_theorem_of_the_theory_page_is_stated(number: int) -> None:
    assert _statements(number)
    assert all(statement.name.startswith(f"theorem {number}: ") for statement in _statements(number))


@pytest.mark.parametrize(
    "statement",
    [pytest.param(statement, id=statement.name) for number in range(1, 12) for statement in _statements(number)],
)
def test_it_is_proved(statement: Statement) -> None:
    result = statement.run(SECONDS)
    assert (result.status, result.name) == (Status.PROVED, statement.name), result.detail
    assert result.rests_on and result.statement and result.latex


@pytest.mark.parametrize("number", [2, 3, 5, 6, 9])
def test_these_hold_for_an_undetermined_function(number: int) -> None:
    assert {statement.method for statement in _statements(number)} == {Method.SYMBOLIC}


@pytest.mark.parametrize("side", ["upper bound", "lower bound"])
def test_the_duality_gap_is_zero_on_both_sides(side: str) -> None:
    names = [statement.name for statement in _statements(1)]
    assert {f"theorem 1: {step}, {side}" for step in ("weak duality", "zero duality gap", "global optimality")} <= set(names)
