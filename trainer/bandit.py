"""The softmax bandit: the smallest place where a clip rule can lose entropy.

Every tensor here starts with the same leading dimensions, written ``(R, L, S)``: clip rules, learning rates and seeds. A slice
``[r, l, s]`` is one training run. The runs share no parameters; they are batched only to be computed together.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from trainer.config import CompareConfig


class PairedRandomness:
    """Common random numbers: one stream per seed, drawn once and used by every rule and learning rate.

    A stream depends on its own seed only, so that adding seeds to a comparison leaves the others as they were.
    """

    def __init__(self, seeds: Sequence[int]) -> None:
        self._streams = [np.random.default_rng(seed) for seed in seeds]

    def uniform(self, *shape: int) -> Tensor:
        """Uniform numbers in [0, 1), float32, of shape ``(S, *shape)``."""
        return torch.from_numpy(np.stack([stream.random(shape, dtype=np.float32) for stream in self._streams]))


class SoftmaxPolicy:
    """π(a | context) = softmax(logits)[a], trained by plain gradient descent.

    Args:
        logits: ``(S, C, A)``, where every rule and learning rate starts from.
        rules: the number R of clip rules.
        learning_rates: the L step sizes.
    """

    def __init__(self, logits: Tensor, rules: int, learning_rates: Sequence[float]) -> None:
        self.logits = logits.expand(rules, len(learning_rates), *logits.shape).clone().requires_grad_()
        self._step_size = torch.tensor(learning_rates, dtype=logits.dtype).view(-1, 1, 1, 1)

    @property
    def contexts(self) -> int:
        """The number C of contexts."""
        return self.logits.shape[-2]

    @torch.no_grad()
    def sample(self, uniform: Tensor) -> Tensor:
        """Actions ``(R, L, S, C, N)`` by inverting the distribution function at ``uniform (S, C, N)``.

        Policies that agree turn the same number into the same action, which is what makes the runs of one seed comparable.
        """
        cumulative = self.logits.softmax(-1).cumsum(-1)
        # Rounding leaves the last entry near 1, not at 1; without the division a number above it would pick an action
        # beyond the last.
        cumulative /= cumulative[..., -1:].clone()
        return torch.searchsorted(cumulative, uniform.expand(*self.logits.shape[:-1], -1).contiguous(), right=True)

    def log_probabilities(self, actions: Tensor, groups: Tensor) -> Tensor:
        """log π(a | context) of actions ``(G, N)``, same shape, differentiable.

        Row g is a group: actions of one run in one context, at the flat index ``groups[g]`` into (R, L, S, C).
        """
        rows = self.logits.view(-1, self.logits.shape[-1]).index_select(0, groups)
        return rows.log_softmax(-1).gather(-1, actions)

    def descend(self, loss: Tensor) -> None:
        """One step of gradient descent on a sum of losses of single groups, each run with its own step size."""
        (gradient,) = torch.autograd.grad(loss, self.logits)
        with torch.no_grad():
            self.logits.addcmul_(gradient, self._step_size, value=-1)


def initial_logits(config: CompareConfig, randomness: PairedRandomness) -> tuple[Tensor, Tensor]:
    """Logits −decay·log(rank) in a random order, and which actions are correct.

    Returns:
        logits ``(S, C, A)`` float32, and a boolean tensor of the same shape: true for the second most likely action and for
        ``random_correct`` others, drawn without replacement.
    """
    assert config.contexts is not None
    order = randomness.uniform(config.contexts, config.actions).argsort(-1)  # order[..., k] is the action of rank k + 1
    by_rank = -config.decay * torch.arange(1, config.actions + 1, dtype=torch.float32).log()
    logits = torch.empty(order.shape).scatter_(-1, order, by_rank.expand(order.shape))
    lottery = randomness.uniform(config.contexts, config.actions).scatter_(-1, order[..., 1:2], -1.0)
    winners = lottery.argsort(-1)[..., : config.random_correct + 1]  # the second most likely comes first: it always wins
    correct = torch.zeros(order.shape, dtype=torch.bool).scatter_(-1, winners, True)
    return logits, correct


class CorrectActions:
    """Reward 1 for a correct action and 0 for any other; ``correct`` is boolean, ``(S, C, A)``."""

    def __init__(self, correct: Tensor) -> None:
        self.correct = correct

    def rewards(self, actions: Tensor, randomness: PairedRandomness) -> Tensor:
        """Rewards of actions ``(R, L, S, C, N)``, same shape; nothing here is random."""
        return self.correct.float().expand(*actions.shape[:-1], -1).gather(-1, actions)

    def expected_reward(self, probabilities: Tensor) -> Tensor:
        """Σ_a π(a)·reward(a) per context, for probabilities ``(R, L, S, C, A)``."""
        return torch.einsum("rlsca,sca->rlsc", probabilities, self.correct.to(probabilities.dtype))


class Coin:
    """The null test: reward 1 with a fixed probability whatever was done. Every action is as correct as any other."""

    def __init__(self, success_rate: float, correct: Tensor) -> None:
        self.success_rate = success_rate
        self.correct = torch.ones_like(correct)

    def rewards(self, actions: Tensor, randomness: PairedRandomness) -> Tensor:
        """Rewards of actions ``(R, L, S, C, N)``, same shape; the coin falls the same way for every rule."""
        return (randomness.uniform(*actions.shape[-2:]) < self.success_rate).float().expand(actions.shape)

    def expected_reward(self, probabilities: Tensor) -> Tensor:
        """The success rate, whatever the policy, per context of probabilities ``(R, L, S, C, A)``."""
        return torch.full_like(probabilities[..., 0], self.success_rate)


def bandit(config: CompareConfig, randomness: PairedRandomness) -> tuple[SoftmaxPolicy, CorrectActions | Coin]:
    """The policies and the task of a resolved configuration."""
    logits, correct = initial_logits(config, randomness)
    policy = SoftmaxPolicy(logits, len(config.rules), config.learning_rates)
    return policy, CorrectActions(correct) if config.reward == "correct" else Coin(config.success_rate, correct)
