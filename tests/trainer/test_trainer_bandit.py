"""The softmax bandit: where it starts, what is correct, and how it samples."""

from __future__ import annotations

import math

import pytest
import torch

from trainer.bandit import Coin, CorrectActions, PairedRandomness, SoftmaxPolicy, bandit, initial_logits
from trainer.config import CompareConfig

CONFIG = CompareConfig(seeds=3, contexts=5).resolved()


def test_initial_logits_are_minus_decay_log_rank_in_some_order() -> None:
    logits, _ = initial_logits(CONFIG, PairedRandomness(range(3)))
    expected = torch.tensor([-1.2 * math.log(rank) for rank in range(1, 65)])
    torch.testing.assert_close(logits.sort(-1, descending=True).values, expected.expand(3, 5, 64))


def test_the_order_differs_between_contexts_and_seeds() -> None:
    logits, _ = initial_logits(CONFIG, PairedRandomness(range(3)))
    assert len({tuple(row.tolist()) for row in logits.view(-1, 64)}) == 15


def test_the_initial_entropy_is_that_of_the_power_law() -> None:
    weights = [rank**-1.2 for rank in range(1, 65)]
    expected = -sum(w / sum(weights) * math.log(w / sum(weights)) for w in weights)
    assert expected == pytest.approx(2.988, abs=5e-4)
    logits, _ = initial_logits(CONFIG, PairedRandomness(range(3)))
    found = torch.special.entr(logits.double().softmax(-1)).sum(-1)
    torch.testing.assert_close(found, torch.full((3, 5), expected, dtype=torch.float64), rtol=1e-6, atol=0)


def test_the_second_most_likely_action_and_eight_others_are_correct() -> None:
    logits, correct = initial_logits(CONFIG, PairedRandomness(range(3)))
    assert correct.sum(-1).eq(9).all()
    second = logits.argsort(-1, descending=True)[..., 1:2]
    assert correct.gather(-1, second).all()


def test_every_other_action_is_correct_equally_often() -> None:
    config = CompareConfig(seeds=2, contexts=4000).resolved()
    logits, correct = initial_logits(config, PairedRandomness(range(2)))
    by_rank = correct.gather(-1, logits.argsort(-1, descending=True)).double().mean((0, 1))
    others = by_rank[torch.arange(64) != 1]
    deviation = math.sqrt(8 / 63 * 55 / 63 / 8000)
    assert (others - 8 / 63).abs().max() < 5 * deviation


def test_runs_of_one_seed_start_alike_and_draw_the_same_first_actions() -> None:
    randomness = PairedRandomness(range(3))
    policy, _ = bandit(CONFIG, randomness)
    actions = policy.sample(randomness.uniform(5, 16))
    for tensor in (policy.logits, actions):
        assert torch.equal(tensor, tensor[:1, :1].expand_as(tensor))


def test_seeds_differ() -> None:
    policy, _ = bandit(CONFIG, PairedRandomness(range(3)))
    assert not torch.equal(policy.logits[0, 0, 0], policy.logits[0, 0, 1])


def test_a_stream_depends_on_its_own_seed_only() -> None:
    alone = PairedRandomness([4]).uniform(2, 3)
    among_others = PairedRandomness([3, 4, 5]).uniform(2, 3)
    assert torch.equal(alone[0], among_others[1])


def test_sampling_inverts_the_distribution_function() -> None:
    policy = SoftmaxPolicy(torch.tensor([[[0.5, 0.25, 0.25]]]).log(), rules=1, learning_rates=[1.0])
    uniform = torch.tensor([[[0.0, 0.49, 0.51, 0.74, 0.76, 1 - 2**-24]]])
    assert policy.sample(uniform).flatten().tolist() == [0, 0, 1, 1, 2, 2]


def test_an_action_of_probability_zero_is_never_sampled() -> None:
    policy = SoftmaxPolicy(torch.tensor([[[-1e9, 0.0, -1e9, 0.0, -1e9]]]), rules=1, learning_rates=[1.0])
    assert set(policy.sample(torch.linspace(0, 1 - 2**-24, 999).view(1, 1, -1)).flatten().tolist()) == {1, 3}


def test_log_probabilities_pick_the_row_of_their_group() -> None:
    logits = torch.tensor([[[0.1, 0.9], [0.4, 0.6]]]).log()  # one seed, two contexts
    policy = SoftmaxPolicy(logits, rules=1, learning_rates=[1.0])
    found = policy.log_probabilities(torch.tensor([[0, 1, 1]]), torch.tensor([1]))
    torch.testing.assert_close(found.exp(), torch.tensor([[0.4, 0.6, 0.6]]))


def test_reward_is_one_for_correct_actions_only() -> None:
    task = CorrectActions(torch.tensor([[[True, False, True]]]))
    actions = torch.tensor([0, 1, 2, 1]).view(1, 1, 1, 1, 4)
    assert task.rewards(actions, PairedRandomness([0])).flatten().tolist() == [1, 0, 1, 0]


def test_a_coin_ignores_the_actions_and_falls_alike_for_every_rule() -> None:
    task = Coin(0.5, torch.zeros(2, 3, 4, dtype=torch.bool))
    actions = torch.arange(4).expand(2, 1, 2, 3, 4)
    flipped = actions.clone()
    flipped[1] = 3 - flipped[1]
    rewards = task.rewards(flipped, PairedRandomness(range(2)))
    assert torch.equal(rewards, task.rewards(actions, PairedRandomness(range(2))))
    assert torch.equal(rewards[0], rewards[1])
    assert set(rewards.unique().tolist()) == {0.0, 1.0}


def test_a_coin_falls_on_one_as_often_as_its_success_rate() -> None:
    task = Coin(0.1, torch.zeros(1, 1, 4, dtype=torch.bool))
    rewards = task.rewards(torch.zeros(1, 1, 1, 1, 100_000, dtype=torch.long), PairedRandomness([0]))
    assert rewards.mean().item() == pytest.approx(0.1, abs=5 * math.sqrt(0.09 / 100_000))
