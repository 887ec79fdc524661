"""The clipped loss as something to call: shapes, dtypes, gradients, compilation without a graph break, and wrong usage."""

import importlib
import math
import shutil
import sys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from bandtheory.torch import TensorBounds, log_bounds, policy_loss

AGGREGATIONS = ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum")
RULES = ("none", "clip:0.2,0.28", "band:kl:0.05:10", "band:tv:0.05:10", "band:pearson_chi2:0.05:10")
DEVICES = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)

RandomBatch = Callable[..., dict[str, Tensor]]
LossAndGradient = Callable[..., tuple[Tensor, Tensor]]


# --- shapes, dtypes, gradients -----------------------------------------------------------------------------------------------


def test_an_advantage_may_belong_to_a_sequence(random_batch: RandomBatch, loss_and_gradient: LossAndGradient) -> None:
    """With B = T, where ordinary broadcasting would run along the wrong dimension."""
    batch = random_batch(1, shape=(6, 6))
    per_sequence = batch["advantages"][:, 0]
    full = {**batch, "advantages": per_sequence.unsqueeze(-1).expand(6, 6)}
    expected = loss_and_gradient(full, rule="clip:0.2,0.28")
    for advantages in (per_sequence, per_sequence.unsqueeze(-1)):
        loss, gradient = loss_and_gradient({**batch, "advantages": advantages}, rule="clip:0.2,0.28")
        assert torch.equal(loss, expected[0])
        assert torch.equal(gradient, expected[1])


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_leading_dimensions_are_one_batch(
    aggregation: str, random_batch: RandomBatch, loss_and_gradient: LossAndGradient
) -> None:
    batch = random_batch(2, shape=(3, 4, 5))
    flat = {name: tensor.reshape(12, 5) for name, tensor in batch.items()}
    loss, gradient = loss_and_gradient(batch, rule="band:kl:0.05:10", aggregation=aggregation)
    flat_loss, flat_gradient = loss_and_gradient(flat, rule="band:kl:0.05:10", aggregation=aggregation)
    torch.testing.assert_close(loss, flat_loss, rtol=1e-14, atol=0.0)
    torch.testing.assert_close(gradient, flat_gradient.reshape(3, 4, 5), rtol=1e-14, atol=0.0)


def test_one_dimension_is_one_sequence() -> None:
    batch = {
        "logp": torch.tensor([-1.0, -1.0, -1.0]),
        "old_logp": torch.full((3,), -1.0),
        "advantages": torch.tensor(2.0),
        "mask": torch.tensor([1, 1, 0]),
    }
    losses = [policy_loss(**batch, rule="none", aggregation=aggregation)[0].item() for aggregation in AGGREGATIONS]
    assert losses == [-2.0, -2.0, -4.0]


@pytest.mark.parametrize("mask_dtype", [torch.bool, torch.int64, torch.float32, torch.bfloat16, torch.uint8], ids=str)
def test_masks_of_zeros_and_ones_of_any_dtype_agree(mask_dtype: torch.dtype, random_batch: RandomBatch) -> None:
    batch = random_batch(4)
    expected = policy_loss(**batch, rule="clip:0.2,0.28")[0]
    assert torch.equal(policy_loss(**{**batch, "mask": batch["mask"].to(mask_dtype)}, rule="clip:0.2,0.28")[0], expected)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_is_computed_in_float32(
    dtype: torch.dtype, rule: str, device: str, random_batch: RandomBatch, loss_and_gradient: LossAndGradient
) -> None:
    """The loss is that of the same numbers in float32, to the bit; the gradient is its rounding to the half type."""
    half = {name: tensor.to(device) for name, tensor in random_batch(5, dtype=dtype).items()}
    single = {name: tensor if name == "mask" else tensor.float() for name, tensor in half.items()}
    loss, gradient = loss_and_gradient(half, rule=rule, dual_clip=3.0)
    expected_loss, expected_gradient = loss_and_gradient(single, rule=rule, dual_clip=3.0)
    assert loss.dtype == torch.float32
    assert gradient.dtype == dtype
    assert torch.equal(loss, expected_loss)
    assert torch.equal(gradient, expected_gradient.to(dtype))


@pytest.mark.parametrize(
    ("logp", "old_logp", "advantages", "expected"),
    [
        (torch.bfloat16, torch.float32, torch.float32, torch.float32),
        (torch.float32, torch.float32, torch.float64, torch.float32),  # numpy advantages do not make a batch float64
        (torch.float32, torch.float64, torch.float32, torch.float64),
        (torch.float32, torch.float32, torch.int64, torch.float32),
    ],
)
def test_dtype_of_the_loss(
    logp: torch.dtype, old_logp: torch.dtype, advantages: torch.dtype, expected: torch.dtype, random_batch: RandomBatch
) -> None:
    batch = random_batch(6)
    dtypes = {"logp": logp, "old_logp": old_logp, "advantages": advantages, "mask": torch.bool}
    loss, statistics = policy_loss(**{name: batch[name].to(dtype) for name, dtype in dtypes.items()}, rule="clip:0.2,0.28")
    assert {loss.dtype, *(value.dtype for value in statistics)} == {expected}


def test_gradients_flow_to_logp_alone(random_batch: RandomBatch) -> None:
    batch = random_batch(8)
    bounds = TensorBounds(*(bound.clone().requires_grad_() for bound in log_bounds(batch["old_logp"], "clip:0.2,0.28")))
    leaves = {name: batch[name].clone().requires_grad_() for name in ("logp", "old_logp", "advantages")}
    loss, statistics = policy_loss(**leaves, mask=batch["mask"], rule=bounds)
    loss.backward()
    assert leaves["logp"].grad is not None
    assert [leaf.grad for leaf in (leaves["old_logp"], leaves["advantages"], *bounds)] == [None] * 4
    assert not any(value.requires_grad for value in statistics)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("rule", RULES)
def test_bounds_computed_once_serve_every_inner_update(
    rule: str, dtype: torch.dtype, random_batch: RandomBatch, loss_and_gradient: LossAndGradient
) -> None:
    batch = random_batch(9, dtype=dtype)
    loss, gradient = loss_and_gradient(batch, rule=rule)
    reused_loss, reused_gradient = loss_and_gradient(batch, rule=log_bounds(batch["old_logp"], rule))
    assert torch.equal(reused_loss, loss)
    assert torch.equal(reused_gradient, gradient)


# --- no synchronisation, compilation -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("rule", RULES)
def test_nothing_is_read_back_from_the_device(
    rule: str, aggregation: str, random_batch: RandomBatch, loss_and_gradient: LossAndGradient
) -> None:
    """Meta tensors have no values: `.item()`, branching on data and boolean-mask indexing all raise on them."""
    batch = {name: tensor.to("meta") for name, tensor in random_batch(10).items()}
    loss, gradient = loss_and_gradient(batch, rule=rule, aggregation=aggregation, dual_clip=3.0)
    assert (loss.shape, gradient.shape) == ((), (5, 7))


if torch.cuda.is_available():

    @pytest.mark.parametrize("rule", RULES)
    def test_cuda_never_synchronises(rule: str, random_batch: RandomBatch, loss_and_gradient: LossAndGradient) -> None:
        batch = {name: tensor.to("cuda") for name, tensor in random_batch(10).items()}
        loss_and_gradient(batch, rule=rule, dual_clip=3.0)  # what a first call sets up may synchronise
        torch.cuda.set_sync_debug_mode("error")
        try:
            loss_and_gradient(batch, rule=rule, dual_clip=3.0)
        finally:
            torch.cuda.set_sync_debug_mode("default")


def _assert_compiled_equals_eager(backend: str, batch: dict[str, Tensor], **options: object) -> None:
    torch.compiler.reset()
    compiled = torch.compile(lambda **inputs: policy_loss(**inputs, **options), fullgraph=True, backend=backend)
    results = []
    for function in (compiled, lambda **inputs: policy_loss(**inputs, **options)):
        logp = batch["logp"].clone().requires_grad_()
        loss, statistics = function(**{**batch, "logp": logp})
        loss.backward()
        results.append((loss.detach(), logp.grad, torch.stack(statistics)))
    torch.testing.assert_close(results[0], results[1], rtol=2e-6, atol=1e-8)


@pytest.mark.parametrize("rule", RULES)
def test_compiles_into_one_graph(rule: str, random_batch: RandomBatch) -> None:
    _assert_compiled_equals_eager("aot_eager", random_batch(11, dtype=torch.float32), rule=rule, dual_clip=3.0)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_compiles_with_given_bounds(aggregation: str, random_batch: RandomBatch) -> None:
    batch = random_batch(11, dtype=torch.bfloat16)
    bounds = log_bounds(batch["old_logp"].float(), "band:kl:0.05:10")
    _assert_compiled_equals_eager("aot_eager", batch, rule=bounds, aggregation=aggregation)


@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor compiles C++; the other backends are tested everywhere")
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method.*:DeprecationWarning")  # raised by importing inductor
def test_generated_code_equals_eager(random_batch: RandomBatch) -> None:
    batch = random_batch(11, dtype=torch.float32)
    batch["logp"][~batch["mask"]] = math.nan
    bounds = log_bounds(batch["old_logp"], "band:kl:0.05:10")
    _assert_compiled_equals_eager("inductor", batch, rule=bounds, aggregation="seq-mean-token-mean", dual_clip=3.0)


# --- wrong usage -------------------------------------------------------------------------------------------------------------


_ONES = torch.ones(2, 3)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"logp": [[0.0]]}, TypeError, r"logp: expected a tensor, got list"),
        ({"mask": None}, TypeError, r"mask: expected a tensor, got NoneType"),
        ({"logp": _ONES.long()}, TypeError, r"logp: expected a floating-point dtype, got torch.int64"),
        ({"old_logp": _ONES.bool()}, TypeError, r"old_logp: expected a floating-point dtype, got torch.bool"),
        ({"advantages": _ONES.bool()}, TypeError, r"advantages: expected a floating-point or integer dtype, got torch.bool"),
        ({"mask": _ONES.to(torch.complex64)}, TypeError, r"mask: expected a bool or real numeric dtype, got torch.complex64"),
        ({"logp": torch.tensor(0.0)}, ValueError, r"logp: a 0-dim tensor has no sequence"),
        ({"old_logp": torch.ones(3)}, ValueError, r"old_logp: shape \(3,\) is not that of logp, \(2, 3\)"),
        ({"mask": torch.ones(2, 1)}, ValueError, r"mask: shape \(2, 1\) is not that of logp, \(2, 3\)"),
        ({"advantages": torch.ones(3)}, ValueError, r"advantages: shape \(3,\) is none of \(2, 3\), \(2,\), \(2, 1\)"),
        ({"mask": _ONES.to("meta")}, ValueError, r"mask: is on device meta, but logp is on cpu"),
        ({"aggregation": "mean"}, ValueError, r"aggregation: 'mean' is none of 'token-mean', 'seq-mean-token-mean', 'seq-"),
        ({"dual_clip": 1}, ValueError, r"dual_clip: 1 is not a finite number above 1"),
        ({"dual_clip": math.nan}, ValueError, r"dual_clip: nan is not a finite number above 1"),
        ({"dual_clip": math.inf}, ValueError, r"dual_clip: inf is not a finite number above 1"),
        ({"dual_clip": "3"}, TypeError, r"dual_clip: expected a number above 1 or None, got '3'"),
        ({"dual_clip": True}, TypeError, r"dual_clip: expected a number above 1 or None, got True"),
        ({"rule": (_ONES, _ONES)}, TypeError, r"rule: expected a rule, a rule string or TensorBounds.*, got tuple"),
        (
            {"rule": TensorBounds(-0.2, 0.2)},
            TypeError,
            r"rule.lower: expected a floating-point tensor of log-ratios, got float",
        ),
        (
            {"rule": TensorBounds(_ONES, _ONES.long())},
            TypeError,
            r"rule.upper: expected a floating-point tensor .* torch.int64",
        ),
        ({"rule": TensorBounds(_ONES[0], _ONES)}, ValueError, r"rule.lower: shape \(3,\) is not that of logp, \(2, 3\)"),
        ({"rule": TensorBounds(_ONES, _ONES.to("meta"))}, ValueError, r"rule.upper: is on device meta, but logp is on cpu"),
        ({"rule": "clop:0.2,0.2"}, ValueError, r"clop"),
    ],
)
def test_wrong_usage_is_refused(change: dict[str, object], error: type[Exception], message: str) -> None:
    arguments = {"logp": _ONES, "old_logp": _ONES, "advantages": _ONES, "mask": _ONES, "rule": "none"}
    with pytest.raises(error, match=message):
        policy_loss(**{**arguments, **change})


def test_a_missing_torch_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "bandtheory.torch")
    with pytest.raises(ImportError, match=r"the extra bandtheory\[torch\]"):
        importlib.import_module("bandtheory.torch")
