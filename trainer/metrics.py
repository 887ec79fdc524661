"""Exact properties of a softmax policy, computed from its probabilities and not from samples."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from trainer.bandit import Coin, CorrectActions


class PolicyMetrics(NamedTuple):
    """Means over contexts, each ``(R, L, S)`` float64.

    entropy: −Σ_a π(a) log π(a), in nats.
    accuracy: the expected reward Σ_a π(a)·reward(a).
    effective_correct: exp of the entropy of the policy restricted to the correct actions. Between 1, where one of them is
        left, and the number of correct actions, where all are equally likely.
    """

    entropy: Tensor
    accuracy: Tensor
    effective_correct: Tensor


@torch.no_grad()
def measure(logits: Tensor, task: CorrectActions | Coin) -> PolicyMetrics:
    """The metrics of policies softmax(logits), for logits ``(R, L, S, C, A)``."""
    exact = logits.double()  # 1 − p loses its last digits in float32 once an action is nearly certain
    probabilities = exact.softmax(-1)
    among_correct = exact.gather(-1, correct_actions(task).expand(*exact.shape[:-1], -1)).softmax(-1)
    return PolicyMetrics(
        entropy=entropy(probabilities).mean(-1),
        accuracy=task.expected_reward(probabilities).mean(-1),
        effective_correct=entropy(among_correct).exp().mean(-1),
    )


def correct_actions(task: CorrectActions | Coin) -> Tensor:
    """The indices ``(S, C, K)`` of the K correct actions, as many in every context."""
    *leading, actions = task.correct.shape
    return torch.arange(actions).expand(task.correct.shape)[task.correct].view(*leading, -1)


def entropy(probabilities: Tensor) -> Tensor:
    """−Σ p log p over the last dimension, in nats, with 0·log 0 = 0."""
    summands: Tensor = torch.special.entr(probabilities)
    return summands.sum(-1)
