"""The clipped loss against the reference cases, theorem 9 written out here, and the garbage that trainers feed it."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from bandtheory.torch import ClipStatistics, TensorBounds, log_bounds, policy_loss

CASES = json.loads((Path(__file__).parent.parent / "data" / "policy_loss.json").read_text())
AGGREGATIONS = ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum")
RULES = ("none", "clip:0.2,0.28", "band:kl:0.05:10", "band:tv:0.05:10", "band:pearson_chi2:0.05:10")
DEVICES = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)

RandomBatch = Callable[..., dict[str, Tensor]]
LossAndGradient = Callable[..., tuple[Tensor, Tensor]]


def _tensor(rows: list[list[float | str]], dtype: torch.dtype, device: str = "cpu") -> Tensor:
    return torch.tensor([[float(value) for value in row] for row in rows], dtype=dtype, device=device)


# --- the reference cases -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("dtype", "rtol", "atol"), [(torch.float64, 1e-10, 1e-12), (torch.float32, 1e-5, 1e-7)], ids=str)
@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_reference_case(
    case: dict, dtype: torch.dtype, rtol: float, atol: float, device: str, loss_and_gradient: LossAndGradient
) -> None:
    batch = {name: _tensor(case[name], dtype, device) for name in ("logp", "old_logp", "advantages", "mask")}
    loss, gradient = loss_and_gradient(batch, rule=case["rule"], aggregation=case["aggregation"], dual_clip=case["dual_clip"])
    # The one loss of 1e-9 has to be right in its digits as well, hence no absolute tolerance where it is alone in the batch.
    torch.testing.assert_close(loss.item(), case["loss"], rtol=rtol, atol=atol if loss.abs() > 1e-6 else 0.0)
    torch.testing.assert_close(gradient, _tensor(case["grad"], dtype, device), rtol=rtol, atol=atol)


# --- theorem 9, written out --------------------------------------------------------------------------------------------------


GENERATORS = {
    "kl": lambda u: -u.log(),
    "tv": lambda u: (u - 1).abs() / 2,
    "pearson_chi2": lambda u: (u - 1) ** 2,
}


@pytest.mark.parametrize("name", GENERATORS)
@pytest.mark.parametrize("seed", range(3))
def test_gradient_needs_no_root(name: str, seed: int, random_batch: RandomBatch, loss_and_gradient: LossAndGradient) -> None:
    """The gradient is −A·r/N, or 0 iff the new ratio left the band, g(p, r) > δ, in the direction of the advantage."""
    batch = random_batch(seed, shape=(40, 50))
    _, gradient = loss_and_gradient(batch, rule=f"band:{name}:0.05")

    p, r, generator = batch["old_logp"].exp(), (batch["logp"] - batch["old_logp"]).exp(), GENERATORS[name]
    g = p * generator(r) + (1 - p) * generator((1 - r * p) / (1 - p))
    outside = (g > 0.05) & torch.where(batch["advantages"] > 0, r > 1, r < 1)
    expected = torch.where(batch["mask"] & ~outside, -batch["advantages"] * r / batch["mask"].sum(), 0.0)
    assert (g - 0.05).abs().min() > 1e-9  # no token so close to a bound that rounding may decide
    assert min(outside[batch["mask"]].sum(), (~outside)[batch["mask"]].sum()) > 50
    torch.testing.assert_close(gradient, expected, rtol=1e-12, atol=0.0)


@pytest.mark.parametrize("dual_clip", [None, 1.5])
@pytest.mark.parametrize("seed", range(3))
def test_value_is_the_clipped_surrogate(
    dual_clip: float | None, seed: int, random_batch: RandomBatch, loss_and_gradient: LossAndGradient
) -> None:
    """−min(rA, clip(r, lower, upper)A), at most c|A| for A < 0, averaged over the valid tokens."""
    batch = random_batch(seed, shape=(40, 50))
    generator = torch.Generator().manual_seed(seed)
    lower, upper = (0.6 * torch.rand((2, 40, 50), generator=generator, dtype=torch.float64)).unbind()
    loss, _ = loss_and_gradient(batch, rule=TensorBounds(-lower, upper), dual_clip=dual_clip)

    ratio, advantages = (batch["logp"] - batch["old_logp"]).exp(), batch["advantages"]
    token_loss = -torch.minimum(ratio * advantages, ratio.clamp((-lower).exp(), upper.exp()) * advantages)
    if dual_clip is not None:
        token_loss = torch.where(advantages < 0, token_loss.minimum(dual_clip * advantages.abs()), token_loss)
    torch.testing.assert_close(loss, token_loss[batch["mask"]].mean(), rtol=1e-12, atol=0.0)


@pytest.mark.parametrize(
    ("log_ratio", "advantage", "gradient_stays"),
    [
        (0.25, 1.0, True),  # on the upper bound
        (math.nextafter(0.25, 1), 1.0, False),
        (-0.25, -1.0, True),  # on the lower bound
        (math.nextafter(-0.25, -1), -1.0, False),
        (math.log(3.0), -1.0, True),  # on the dual clip
        (math.nextafter(math.log(3.0), 2), -1.0, False),
        (0.3, -1.0, True),  # past a bound, but coming back
        (-0.3, 1.0, True),
        (-20.0, 1.0, True),  # on the clamp of the log-ratio
        (math.nextafter(-20.0, -21), 1.0, False),
    ],
)
def test_a_ratio_on_a_bound_keeps_its_gradient(
    log_ratio: float, advantage: float, gradient_stays: bool, loss_and_gradient: LossAndGradient
) -> None:
    bound = torch.tensor([0.25], dtype=torch.float64)
    batch = {
        "logp": torch.tensor([log_ratio], dtype=torch.float64),
        "old_logp": torch.zeros(1, dtype=torch.float64),
        "advantages": torch.tensor(advantage, dtype=torch.float64),
        "mask": torch.ones(1),
    }
    _, gradient = loss_and_gradient(batch, rule=TensorBounds(-bound, bound), dual_clip=3.0)
    expected = -advantage * math.exp(log_ratio) if gradient_stays else 0.0
    torch.testing.assert_close(gradient.item(), expected, rtol=1e-14, atol=0.0)


# --- masked positions, NaN, nothing valid ------------------------------------------------------------------------------------


_GARBAGE = st.sampled_from([math.nan, math.inf, -math.inf, 0.0, 1.0, 200.0, -200.0, 3e38, -3e38, 1e-45])


@settings(deadline=None, derandomize=True, max_examples=60)
@example(garbage=[math.nan] * 5, rule="clip:0.2,0.28", given_bounds=True)
@example(garbage=[math.nan] * 5, rule="band:kl:0.05:10", given_bounds=False)
@given(garbage=st.lists(_GARBAGE, min_size=5, max_size=5), rule=st.sampled_from(RULES), given_bounds=st.booleans())
def test_masked_values_are_never_looked_at(
    garbage: list[float], rule: str, given_bounds: bool, random_batch: RandomBatch, loss_and_gradient: LossAndGradient
) -> None:
    batch = random_batch(7, dtype=torch.float32)
    clean_bounds = log_bounds(batch["old_logp"], rule)
    loss, gradient = loss_and_gradient(batch, rule=clean_bounds if given_bounds else rule, dual_clip=3.0)

    fill = dict(zip(("logp", "old_logp", "advantages", "lower", "upper"), garbage, strict=True))
    dirty = {name: value if name == "mask" else value.where(batch["mask"], fill[name]) for name, value in batch.items()}
    bounds = TensorBounds(*(bound.where(batch["mask"], fill[side]) for side, bound in clean_bounds._asdict().items()))
    dirty_loss, dirty_gradient = loss_and_gradient(dirty, rule=bounds if given_bounds else rule, dual_clip=3.0)

    assert torch.equal(dirty_loss, loss)
    assert torch.equal(dirty_gradient, gradient)


def test_masked_garbage_does_not_reach_the_statistics(random_batch: RandomBatch) -> None:
    batch = random_batch(7)
    dirty = {**batch, **{name: batch[name].where(batch["mask"], math.nan) for name in ("logp", "old_logp", "advantages")}}
    expected = policy_loss(**batch, rule="band:kl:0.05:10")[1]
    assert torch.equal(torch.stack(policy_loss(**dirty, rule="band:kl:0.05:10")[1]), torch.stack(expected))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", ["logp", "old_logp"])
def test_nan_at_a_valid_position_is_not_hidden(
    name: str, rule: str, random_batch: RandomBatch, loss_and_gradient: LossAndGradient
) -> None:
    batch = random_batch(3)
    row, column = batch["mask"].nonzero()[0].tolist()
    batch[name][row, column] = math.nan
    loss, gradient = loss_and_gradient(batch, rule=rule)
    assert loss.isnan()
    assert gradient.isnan().nonzero().tolist() == [[row, column]]


@pytest.mark.parametrize("rule", RULES)
def test_nan_advantage_is_not_hidden(rule: str, random_batch: RandomBatch, loss_and_gradient: LossAndGradient) -> None:
    batch = random_batch(3)
    row, column = batch["mask"].nonzero()[0].tolist()
    batch["advantages"][row, column] = math.nan
    loss, gradient = loss_and_gradient(batch, rule=rule)
    assert loss.isnan()
    assert gradient.isnan().nonzero().tolist() == [[row, column]]


@pytest.mark.parametrize("side", ["lower", "upper"])
def test_nan_in_the_bound_that_matters_is_not_hidden(side: str, random_batch: RandomBatch) -> None:
    batch = random_batch(3)
    sign = -1 if side == "lower" else 1
    bounds = TensorBounds(torch.full_like(batch["logp"], -0.2), torch.full_like(batch["logp"], 0.2))
    row, column = (batch["mask"] & (sign * batch["advantages"] > 0)).nonzero()[0].tolist()
    getattr(bounds, side)[row, column] = math.nan
    assert policy_loss(**batch, rule=bounds)[0].isnan()


@pytest.mark.parametrize(("logp", "old_logp"), [(-1.0, -math.inf), (-math.inf, -1.0)])
@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_infinite_log_probabilities_give_finite_losses(
    logp: float, old_logp: float, advantage: float, loss_and_gradient: LossAndGradient
) -> None:
    batch = {
        "logp": torch.tensor([logp]),
        "old_logp": torch.tensor([old_logp]),
        "advantages": torch.tensor([advantage]),
        "mask": torch.tensor([True]),
    }
    loss, gradient = loss_and_gradient(batch, rule="band:kl:0.05:10", dual_clip=10.0)
    assert loss.isfinite()
    assert gradient.tolist() == [0.0]


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("shape", [(3, 4), (0, 4), (3, 0)], ids=str)
def test_nothing_valid_gives_zero(shape: tuple[int, int], aggregation: str, loss_and_gradient: LossAndGradient) -> None:
    batch = {name: torch.full(shape, -1.0) for name in ("logp", "old_logp", "advantages")} | {"mask": torch.zeros(shape)}
    loss, gradient = loss_and_gradient(batch, rule="clip:0.2,0.2", aggregation=aggregation)
    assert loss.item() == 0
    assert torch.equal(gradient, torch.zeros(shape))
    statistics = policy_loss(**batch, rule="clip:0.2,0.2", aggregation=aggregation)[1]
    assert statistics._asdict() == dict.fromkeys(ClipStatistics._fields, 0.0) | {"ratio_mean": 1.0}


# --- statistics --------------------------------------------------------------------------------------------------------------


def test_statistics_by_hand() -> None:
    """Eight valid tokens under clip:0.2,0.28 with dual clip 3: two clipped up, one down, one by dual clip."""
    ratio = torch.tensor([1.5, 2.0, 0.5, 4.0, 1.0, 1.2, 0.5, 1.0, 9.0], dtype=torch.float64)
    old_logp = torch.full_like(ratio, -3.0)
    advantages = torch.tensor([1.0, 1.0, -1.0, -1.0, 1.0, 1.0, 1.0, 0.0, 1.0], dtype=torch.float64)
    mask = torch.tensor([1, 1, 1, 1, 1, 1, 1, 1, 0])
    _, statistics = policy_loss(old_logp + ratio.log(), old_logp, advantages, mask, rule="clip:0.2,0.28", dual_clip=3.0)
    kl = sum(r - 1 - math.log(r) for r in (1.5, 2.0, 0.5, 4.0, 1.0, 1.2, 0.5, 1.0)) / 8
    expected = ClipStatistics(
        tokens=8.0,
        clipped_up=2 / 8,
        clipped_down=1 / 8,
        dual_clipped=1 / 8,
        saturated=0.0,
        ratio_mean=11.7 / 8,
        ratio_max=4.0,
        approximate_kl=kl,
    )
    torch.testing.assert_close(torch.stack(statistics).tolist(), list(expected), rtol=1e-12, atol=0.0)


def test_saturated_tokens_are_counted() -> None:
    logp, old_logp = torch.tensor([-1.0, -30.0, -21.5]), torch.tensor([-30.0, -1.0, -1.5])
    statistics = policy_loss(logp, old_logp, torch.ones(3), torch.ones(3), rule="none")[1]
    assert statistics.saturated.item() == pytest.approx(2 / 3)  # the third log-ratio is −20, still inside


def test_kl_of_a_tiny_step_keeps_its_digits() -> None:
    """r − 1 − log r ≈ x²/2 for log-ratio x: 5e-9 for 1e-4, far below the rounding of r itself in float32."""
    old_logp = torch.full((1000,), -0.5)
    logp = old_logp + 1e-4
    step = (logp - old_logp).double().mean().item()
    statistics = policy_loss(logp, old_logp, torch.ones(1000), torch.ones(1000), rule="none")[1]
    assert statistics.approximate_kl.item() == pytest.approx(step**2 / 2, rel=5e-3)
