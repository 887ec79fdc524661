"""Exact policy metrics on policies small enough to work out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from trainer.bandit import Coin, CorrectActions
from trainer.metrics import entropy, measure


def logits(*probabilities: float) -> torch.Tensor:
    """One rule, learning rate, seed and context."""
    return torch.tensor(probabilities).log().view(1, 1, 1, 1, -1)


TASK = CorrectActions(torch.tensor([[[True, False, True]]]))


def test_entropy_of_a_half_and_two_quarters() -> None:
    assert measure(logits(0.5, 0.25, 0.25), TASK).entropy.item() == pytest.approx(1.5 * math.log(2), rel=1e-7)


def test_accuracy_is_the_mass_of_the_correct_actions() -> None:
    assert measure(logits(0.5, 0.2, 0.3), TASK).accuracy.item() == pytest.approx(0.8, rel=1e-6)


def test_effective_correct_counts_equally_likely_correct_actions() -> None:
    assert measure(logits(0.1, 0.8, 0.1), TASK).effective_correct.item() == pytest.approx(2.0, rel=1e-6)


def test_effective_correct_of_a_quarter_and_three_quarters() -> None:
    expected = 4 / 3**0.75  # exp of ¼ log 4 + ¾ log(4/3)
    assert measure(logits(0.1, 0.6, 0.3), TASK).effective_correct.item() == pytest.approx(expected, rel=1e-6)


def test_a_policy_that_left_every_correct_action_still_has_finite_metrics() -> None:
    found = measure(torch.tensor([-1e4, 0.0, -2e4]).view(1, 1, 1, 1, 3), TASK)
    assert (found.entropy.item(), found.accuracy.item(), found.effective_correct.item()) == (0.0, 0.0, 1.0)


def test_metrics_are_means_over_contexts() -> None:
    two = torch.cat([logits(0.5, 0.25, 0.25), logits(1 / 3, 1 / 3, 1 / 3)], dim=-2)
    task = CorrectActions(TASK.correct.expand(1, 2, 3))
    assert measure(two, task).entropy.item() == pytest.approx((1.5 * math.log(2) + math.log(3)) / 2, rel=1e-7)


def test_under_a_coin_accuracy_is_the_success_rate_and_every_action_counts_as_correct() -> None:
    found = measure(logits(0.25, 0.25, 0.25, 0.25), Coin(0.1, torch.zeros(1, 1, 4, dtype=torch.bool)))
    assert found.accuracy.item() == 0.1
    assert found.effective_correct.item() == pytest.approx(4.0, rel=1e-12)


def test_entropy_of_a_certain_action_is_zero() -> None:
    assert entropy(torch.tensor([0.0, 1.0])).item() == 0.0
