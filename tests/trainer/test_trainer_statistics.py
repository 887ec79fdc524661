"""Bootstrap intervals, and what is concluded from them."""

from __future__ import annotations

import numpy as np
import pytest

from trainer.statistics import Interval, paired_difference, pointwise_band
from trainer.summary import entropy_at_accuracy, judge


def test_the_difference_is_paired_by_seed() -> None:
    seeds = np.array([0.0, 100.0, -50.0, 7.0])  # what varies between seeds is shared and cancels
    found = paired_difference(seeds + 2.0, seeds, seed=0)
    assert found == Interval(2.0, 2.0, 2.0)


def test_the_interval_of_two_seeds_spans_both() -> None:
    # A resample is (1, 1), (1, 3), (3, 1) or (3, 3): the 2.5 % and 97.5 % quantiles of the mean are 1 and 3.
    assert paired_difference(np.array([1.0, 3.0]), np.zeros(2), seed=0) == Interval(2.0, 1.0, 3.0)


def test_the_interval_agrees_with_the_normal_theory_for_many_seeds() -> None:
    values = np.random.default_rng(5).normal(1.0, 2.0, size=400)
    found = paired_difference(values, np.zeros(400), seed=0)
    half = 1.96 * values.std() / 20
    assert found.low == pytest.approx(values.mean() - half, abs=0.1 * half)
    assert found.high == pytest.approx(values.mean() + half, abs=0.1 * half)


def test_the_same_seed_resamples_alike() -> None:
    values = np.random.default_rng(1).normal(size=10)
    assert paired_difference(values, np.zeros(10), seed=3) == paired_difference(values, np.zeros(10), seed=3)


@pytest.mark.parametrize("shape", [(1,), (2, 2)])
def test_a_single_seed_or_a_matrix_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="no paired seeds"):
        paired_difference(np.zeros(shape), np.zeros(shape), seed=0)


def test_the_band_of_two_seeds_spans_both_at_every_step() -> None:
    low, high = pointwise_band(np.array([[1.0, 3.0], [5.0, 5.0]]), seed=0)
    assert low.tolist() == [1.0, 5.0]
    assert high.tolist() == [3.0, 5.0]


EQUAL = Interval(0.0, -0.001, 0.001)


@pytest.mark.parametrize(
    ("entropy", "accuracy", "verdict"),
    [
        (Interval(0.2, 0.1, 0.3), EQUAL, "holds"),
        (Interval(0.2, 0.1, 0.3), Interval(0.05, 0.04, 0.06), "holds"),  # better accuracy is no objection
        (Interval(0.2, 0.1, 0.3), Interval(-0.05, -0.06, -0.04), "lower accuracy"),
        (Interval(0.2, 0.1, 0.3), Interval(-0.01, -0.03, 0.01), "accuracy undecided"),
        (Interval(0.1, -0.1, 0.3), EQUAL, "undecided"),
        (Interval(-0.2, -0.3, -0.1), EQUAL, "less entropy"),
        (Interval(0.01, 0.005, 0.02), EQUAL, "negligible"),
        (Interval(0.03, 0.02, 0.04), EQUAL, "holds"),
    ],
)
def test_the_verdict_follows_from_the_intervals(entropy: Interval, accuracy: Interval, verdict: str) -> None:
    assert judge(entropy, accuracy, negligible=0.03, margin=0.01) == verdict


def test_entropy_at_an_accuracy_is_interpolated_seed_by_seed() -> None:
    accuracy = np.array([[0.2, 0.2, 0.9], [0.4, 0.2, 0.9], [0.8, 0.3, 0.9]])
    entropy = np.array([[3.0, 3.0, 3.0], [2.0, 2.0, 2.0], [1.0, 1.0, 1.0]])
    found = entropy_at_accuracy(entropy, accuracy, 0.5)
    assert found[0] == pytest.approx(1.75)  # a quarter of the way from 0.4 to 0.8, hence from 2 to 1
    assert np.isnan(found[1:]).all()  # one never reaches it, one starts above
