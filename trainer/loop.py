"""Group relative policy optimisation with any clip rule: the algorithm of the papers, read from top to bottom.

    for each step:
        sample N actions in each context from the old policy π_old
        A = (reward − mean) / std over the N samples of a context
        [lower, upper] = the clip rule at log π_old of each sample            fixed for the inner steps
        for each inner step:
            r = π / π_old
            descend  −min(r·A, clip(r, lower, upper)·A)

Sources: DeepSeekMath, https://arxiv.org/abs/2402.03300 (group-normalised advantages); PPO, https://arxiv.org/abs/1707.06347.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from bandtheory.torch import TensorBounds, log_bounds, policy_loss
from trainer.bandit import PairedRandomness


class Policy(Protocol):
    """What the loop asks of a policy: many runs at once, with dimensions ``(R, L, S, C)``: rules, rates, seeds, contexts."""

    @property
    def contexts(self) -> int: ...
    def sample(self, uniform: Tensor) -> Tensor: ...
    def log_probabilities(self, actions: Tensor, groups: Tensor) -> Tensor: ...
    def descend(self, loss: Tensor) -> None: ...


class Task(Protocol):
    """What the loop asks of a task."""

    def rewards(self, actions: Tensor, randomness: PairedRandomness) -> Tensor: ...


class ClipFractions(NamedTuple):
    """Shares of all samples whose gradient the rule removed, averaged over the inner steps of one step; each ``(R, L, S)``.

    up: a positive advantage and a ratio above the upper bound; down: a negative one and a ratio below the lower bound.
    """

    up: Tensor
    down: Tensor


def train(
    policy: Policy,
    task: Task,
    rules: Sequence[str],
    randomness: PairedRandomness,
    *,
    steps: int,
    inner_steps: int,
    samples: int,
) -> Iterator[ClipFractions]:
    """Train ``policy`` in place, one run per rule, learning rate and seed; yields after each of the ``steps`` steps."""
    for _ in range(steps):
        actions = policy.sample(randomness.uniform(policy.contexts, samples))
        advantages = group_advantages(task.rewards(actions, randomness))
        groups = informative_groups(advantages)
        counter = ClipCounter(advantages, groups)
        actions, advantages = actions.flatten(0, -2)[groups], advantages.flatten(0, -2)[groups]
        old_logp = policy.log_probabilities(actions, groups).detach()
        bounds = rule_bounds(old_logp, rules, counter.groups_per_rule)
        every_sample = torch.ones_like(actions, dtype=torch.bool)
        for _ in range(inner_steps):
            logp = policy.log_probabilities(actions, groups)
            loss, _ = policy_loss(logp, old_logp, advantages, every_sample, rule=bounds, aggregation="token-mean")
            # token-mean divides by the samples of all groups of all runs. Times the number of groups it is the sum over
            # groups of the mean over a group's samples. No two runs share a parameter, and no two contexts of the bandit do,
            # so each row of logits descends the mean of its own group, whatever else is in the batch.
            policy.descend(loss * len(groups))
            counter.add(logp.detach() - old_logp, advantages, bounds)
        yield counter.fractions(inner_steps)


def group_advantages(rewards: Tensor) -> Tensor:
    """A = (reward − mean) / std over the last dimension, the samples of one context; population std, as in theory.

    A group whose rewards are all equal says nothing and gets advantages 0. At success rate s, successes get √((1−s)/s) and
    failures −√(s/(1−s)).
    """
    centred = rewards - rewards.mean(-1, keepdim=True)
    deviation = centred.square().mean(-1, keepdim=True).sqrt()
    # The mean of equal rewards may be off by one rounding, which must not be blown up to advantages of size 1.
    return torch.where(deviation > 1e-6, centred / deviation, 0.0)


def informative_groups(advantages: Tensor) -> Tensor:
    """Flat indices ``(G,)`` into (R, L, S, C) of the groups with a gradient; the others would only add zeros to the batch.

    Once a task is nearly solved, almost every group is all successes: leaving those out makes a comparison several times
    faster and changes no result.
    """
    return (advantages != 0).any(-1).flatten().nonzero().squeeze(-1)


def rule_bounds(old_logp: Tensor, rules: Sequence[str], groups_per_rule: Sequence[int]) -> TensorBounds:
    """Log-ratio bounds for old log-probabilities ``(G, N)``, whose rows are sorted by rule."""
    parts: tuple[Tensor, ...] = torch.split(old_logp, list(groups_per_rule))
    slices = [log_bounds(part, rule) for part, rule in zip(parts, rules, strict=True)]
    return TensorBounds(*(torch.cat(side) for side in zip(*slices, strict=True)))


class ClipCounter:
    """Counts clipped samples run by run (policy_loss counts them over all runs together).

    Args:
        advantages: ``(R, L, S, C, N)``, of all groups.
        groups: ``(G,)``, the flat indices of those in the batch.
    """

    def __init__(self, advantages: Tensor, groups: Tensor) -> None:
        self._runs = advantages.shape[:-2]
        self._run_of_group = groups // advantages.shape[-2]
        self._samples_per_run = advantages.shape[-2:].numel()
        self._clipped = torch.zeros(2, len(groups))
        self.groups_per_rule: list[int] = (
            torch.bincount(self._run_of_group, minlength=self._runs.numel()).view(self._runs[0], -1).sum(-1).tolist()
        )

    def add(self, log_ratio: Tensor, advantages: Tensor, bounds: TensorBounds) -> None:
        """Count one inner step; all tensors ``(G, N)``."""
        self._clipped[0] += ((advantages > 0) & (log_ratio > bounds.upper)).sum(-1)
        self._clipped[1] += ((advantages < 0) & (log_ratio < bounds.lower)).sum(-1)

    def fractions(self, inner_steps: int) -> ClipFractions:
        """Shares of all samples of a run, the uninformative ones included, averaged over the inner steps."""
        totals = torch.zeros(2, self._runs.numel()).index_add_(1, self._run_of_group, self._clipped)
        up, down = totals.view(2, *self._runs) / (self._samples_per_run * inner_steps)
        return ClipFractions(up, down)
