"""The optimisation loop against formulas worked out by hand in numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from trainer.bandit import PairedRandomness, SoftmaxPolicy
from trainer.loop import ClipCounter, group_advantages, informative_groups, rule_bounds, train

LOGITS = torch.tensor([[[0.3, -0.2, 0.0], [0.0, 1.0, -1.0]], [[0.5, 0.5, -0.5], [-1.0, 0.2, 0.1]]])  # 2 seeds, 2 contexts


class FixedRewards:
    """The same rewards at every step."""

    def __init__(self, rewards: torch.Tensor) -> None:
        self.fixed = rewards

    def rewards(self, actions: torch.Tensor, randomness: PairedRandomness) -> torch.Tensor:
        return self.fixed.expand(actions.shape)


REWARDS = torch.tensor([[[1.0, 0, 0, 0], [1, 1, 0, 0]], [[0, 0, 0, 1], [1, 1, 1, 1]]])  # the last group says nothing


def by_hand(logits: np.ndarray, actions: np.ndarray, rewards: np.ndarray, rate: float, limits: tuple[float, float], inner: int):
    """One context: softmax policy gradient of the clipped surrogate, d log π(a) / d logits = onehot(a) − π."""
    logits = logits.astype(float)
    advantages = np.zeros(len(rewards)) if np.ptp(rewards) == 0 else (rewards - rewards.mean()) / rewards.std()
    onehot = np.eye(len(logits))[actions]

    def softmax() -> np.ndarray:
        return np.exp(logits) / np.exp(logits).sum()

    old = softmax()[actions]
    clipped = 0
    for _ in range(inner):
        policy = softmax()
        ratio = policy[actions] / old
        cut = ((advantages > 0) & (ratio > limits[1])) | ((advantages < 0) & (ratio < limits[0]))
        clipped += cut.sum()
        weight = np.where(cut, 0.0, advantages * ratio)
        logits = logits + rate * (weight[:, None] * (onehot - policy)).mean(0)
    return logits, clipped / (inner * len(rewards))


@pytest.mark.parametrize("inner_steps", [1, 6])
def test_every_run_takes_the_softmax_policy_gradient_steps_of_its_own_rule_and_rate(inner_steps: int) -> None:
    rules, rates, limits = ("none", "clip:0.2,0.28"), (0.5, 4.0), ((0.0, np.inf), (0.8, 1.28))
    policy = SoftmaxPolicy(LOGITS, rules=2, learning_rates=rates)
    actions = policy.sample(PairedRandomness(range(2)).uniform(2, 4)).numpy()
    training = train(
        policy, FixedRewards(REWARDS), rules, PairedRandomness(range(2)), steps=1, inner_steps=inner_steps, samples=4
    )
    (fractions,) = list(training)
    clipped = (fractions.up + fractions.down).numpy()
    for i, j, s in np.ndindex(2, 2, 2):
        expected = [
            by_hand(LOGITS[s, c].numpy(), actions[i, j, s, c], REWARDS[s, c].numpy(), rates[j], limits[i], inner_steps)
            for c in range(2)
        ]
        np.testing.assert_allclose(policy.logits.detach().numpy()[i, j, s], [row for row, _ in expected], atol=2e-5)
        assert clipped[i, j, s] == pytest.approx(np.mean([cut for _, cut in expected]), abs=1e-6)


def test_the_hand_worked_case_does_clip() -> None:
    _, clipped = by_hand(LOGITS[0, 0].numpy(), np.array([0, 1, 2, 1]), REWARDS[0, 0].numpy(), 4.0, (0.8, 1.28), 6)
    assert clipped > 0


def test_a_step_without_any_informative_group_changes_nothing() -> None:
    policy = SoftmaxPolicy(LOGITS, rules=2, learning_rates=(1.0,))
    training = train(
        policy,
        FixedRewards(torch.ones(2, 2, 4)),
        ("clip", "band:tv:0.05"),
        PairedRandomness(range(2)),
        steps=1,
        inner_steps=2,
        samples=4,
    )
    (fractions,) = list(training)
    assert torch.equal(policy.logits, LOGITS.expand_as(policy.logits))
    assert fractions.up.eq(0).all() and fractions.down.eq(0).all()


def test_advantages_of_rare_successes_are_large_gains_and_small_losses() -> None:
    rewards = torch.tensor([1.0] + [0.0] * 9)
    success, failure = math.sqrt(0.9 / 0.1), -math.sqrt(0.1 / 0.9)
    torch.testing.assert_close(group_advantages(rewards), torch.tensor([success] + [failure] * 9))


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1])
def test_a_group_of_equal_rewards_has_no_advantages(value: float) -> None:
    assert group_advantages(torch.full((13,), value)).eq(0).all()


def test_informative_groups_are_those_with_an_advantage() -> None:
    advantages = group_advantages(REWARDS).view(1, 1, 2, 2, 4)
    assert informative_groups(advantages).tolist() == [0, 1, 2]


def test_each_rule_bounds_its_own_rows() -> None:
    old_logp = torch.full((3, 2), math.log(0.25))
    bounds = rule_bounds(old_logp, ("clip:0.2,0.28", "none", "band:tv:0.05"), [1, 0, 2])
    expected = torch.tensor([[1.28, 1.28], [1.2, 1.2], [1.2, 1.2]])  # total variation: 1 + 0.05 / 0.25
    torch.testing.assert_close(bounds.upper.exp(), expected)
    torch.testing.assert_close(bounds.lower.exp(), torch.full((3, 2), 0.8))


def test_clipped_samples_are_counted_run_by_run() -> None:
    advantages = torch.tensor([[1.0, -1.0], [1.0, -1.0], [0.0, 0.0], [-1.0, 1.0]]).view(2, 1, 1, 2, 2)  # 2 rules, 2 contexts
    groups = torch.tensor([0, 1, 3])
    counter = ClipCounter(advantages, groups)
    assert counter.groups_per_rule == [2, 1]
    bounds = rule_bounds(torch.zeros(3, 2) - 1, ("clip", "clip_higher"), counter.groups_per_rule)
    log_ratio = torch.tensor([[1.3, 0.7], [0.9, 0.9], [0.7, 1.25]]).log()
    counter.add(log_ratio, advantages.view(4, 2)[groups], bounds)
    up, down = counter.fractions(inner_steps=1)
    assert up.flatten().tolist() == [1 / 4, 0.0]
    assert down.flatten().tolist() == [1 / 4, 1 / 4]
