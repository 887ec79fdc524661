"""Rules from tables of radii on tensors."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import bandtheory as bt
from bandtheory.radius_table import RadiusTable
from bandtheory.rules import parse
from bandtheory.schedules import parse_schedule
from bandtheory.tables import TableError
from bandtheory.torch import bounds, log_bounds, policy_loss
from bandtheory.torch.bounds import log_bound_on_side
from bandtheory.torch.formulas import device_program

DELTA = 0.0503
HALF = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}  # of rounding to nearest, relative
SMALLEST = {torch.float32: 2.0**-149, torch.float16: 2.0**-24, torch.bfloat16: 2.0**-133}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("radii")
    found = {}
    for name, box in (("tv", (0.05, 0.051)), ("kl", (0.05, 0.051))):
        for inside in (False, True):
            path = folder / f"{name}{'_inside' if inside else ''}.safetensors"
            RadiusTable.build(name, *box, inside=inside, max_error=1e-3, logp_min=-8.0).save(path)
            found[path.stem] = path
    return found


def tokens(dtype: torch.dtype, count: int = 20_000) -> Tensor:
    generator = torch.Generator().manual_seed(7)
    patterns = torch.randint(0, 0x41200000, (count // 2,), generator=generator, dtype=torch.int32)  # of 0 to 10
    ordinary = 10 * torch.rand(count // 2, generator=generator)
    ends = torch.tensor([0.0, 8.0, 9.0, math.inf])
    return -torch.cat([patterns.view(torch.float32), ordinary, ends]).to(dtype)


@pytest.mark.parametrize("dtype", list(HALF))
@pytest.mark.parametrize("name", ["kl", "tv"])
def test_tensors_are_the_numpy_bounds_rounded(files: dict[str, Path], name: str, dtype: torch.dtype) -> None:
    rule = f"table:{files[name]}@{DELTA}:10"
    logp = tokens(dtype)
    exact = parse(rule).log_bounds(logp.double().numpy())
    for found, bound in zip(log_bounds(logp, rule), (exact.lower, exact.upper), strict=True):
        computed = found.double().numpy()
        assert found.dtype == dtype
        gone = np.isneginf(bound)
        assert (np.isneginf(computed) == gone).all()
        assert (np.abs(computed[~gone] - bound[~gone]) <= 1.001 * HALF[dtype] * np.abs(bound[~gone]) + SMALLEST[dtype]).all()
    for found, bound in zip(bounds(logp, rule), (np.exp(exact.lower), np.exp(exact.upper)), strict=True):
        assert (np.abs(found.double().numpy() - bound) <= 1.001 * HALF[dtype] * bound + SMALLEST[dtype]).all()


def test_float64_is_the_table_itself_on_the_cpu_and_by_the_program_of_devices(files: dict[str, Path]) -> None:
    for name, cap in (("kl", ":2"), ("tv", ""), ("kl_inside", ":2"), ("tv_inside", "")):
        rule = f"table:{files[name]}@{DELTA}{cap}"
        logp = tokens(torch.float64, 4000)
        exact = parse(rule).log_bounds(logp.numpy())
        lower, upper = log_bounds(logp, rule)
        assert (lower.numpy() == exact.lower).all() and (upper.numpy() == exact.upper).all()
        lower, upper = device_program(rule)(logp)
        assert np.allclose(lower.numpy(), exact.lower, rtol=1e-13, atol=1e-16)
        assert np.allclose(upper.numpy(), exact.upper, rtol=1e-13, atol=1e-16)
        assert exact.upper.max() == math.log(2) or not cap


def test_what_is_not_a_log_probability(files: dict[str, Path]) -> None:
    rule = f"table:{files['tv']}@{DELTA}"
    for dtype in (torch.float64, *HALF):
        odd = torch.tensor([math.nan, 0.5, 0.0, -math.inf, -8.0], dtype=dtype)
        for found in (*log_bounds(odd, rule), *bounds(odd, rule)):
            assert torch.isnan(found).tolist() == [True, False, False, False, False]
            assert found[1] == found[2] and found[3] == found[4]
    shaped = tokens(torch.float32, 24)[:24].reshape(2, 3, 4).transpose(0, 2)
    lower, upper = log_bounds(shaped, rule)
    assert lower.shape == upper.shape == shaped.shape and lower.is_contiguous()
    assert torch.equal(lower, log_bounds(shaped.contiguous(), rule).lower)


@pytest.mark.parametrize("dtype", list(HALF))
@pytest.mark.parametrize("name", ["kl_inside", "tv_inside"])
def test_an_inside_table_stays_inside_in_every_dtype_and_as_ratios(
    files: dict[str, Path], name: str, dtype: torch.dtype
) -> None:
    rule = f"table:{files[name]}@{DELTA}"
    logp = tokens(dtype)
    true = bt.log_bounds(logp=logp.double().numpy(), divergence=name.removesuffix("_inside"), delta=DELTA)
    table = parse(rule).log_bounds(logp.double().numpy())
    lower, upper = (found.double().numpy() for found in log_bounds(logp, rule))
    assert (lower >= np.maximum(true.lower, table.lower)).all() and (upper <= np.minimum(true.upper, table.upper)).all()
    assert (lower <= 0).all() and (upper >= 0).all()
    lower, upper = (found.double().numpy() for found in bounds(logp, rule))
    assert (lower >= np.exp(table.lower)).all() and (upper <= np.exp(table.upper)).all()
    assert (lower <= 1).all() and (upper >= 1).all()
    # not farther in than two roundings to the dtype
    assert (lower - np.exp(table.lower) <= 4 * HALF[dtype] * np.exp(table.lower) + 3 * SMALLEST[dtype]).all()
    assert (np.exp(table.upper) - upper <= 4 * HALF[dtype] * np.exp(table.upper) + 3 * SMALLEST[dtype]).all()


@pytest.mark.parametrize("name", ["kl", "tv"])
def test_the_inside_of_a_table_is_certified(files: dict[str, Path], name: str) -> None:
    logp = tokens(torch.bfloat16, 60)
    lower, upper = log_bounds(logp, f"table:{files[f'{name}_inside']}@{DELTA}")
    for side, found in (("lower", lower), ("upper", upper)):
        finite = torch.isfinite(found) & torch.isfinite(logp)
        claims = found[finite].double().numpy()
        made = bt.certify(logp[finite].double().numpy(), None, name, DELTA, side, log_ratio=claims, tolerance=0.0)
        assert set(made.verdict) <= {"inside", "on"}  # type: ignore[union-attr]


def test_one_side_of_each_token(files: dict[str, Path]) -> None:
    rule = f"table:{files['kl']}@{DELTA}"
    for dtype in (torch.float64, *HALF):
        logp = tokens(dtype, 1000)
        is_upper = torch.rand(logp.shape, generator=torch.Generator().manual_seed(3)) < 0.5
        lower, upper = log_bounds(logp, rule)
        assert torch.equal(log_bound_on_side(logp, is_upper, rule), torch.where(is_upper, upper, lower))


def test_graphs_and_fake_tensors_see_one_operator(files: dict[str, Path]) -> None:
    rule = f"table:{files['kl']}@{DELTA}"
    logp = tokens(torch.float32, 1000)
    compiled = torch.compile(lambda x: log_bounds(x, rule), fullgraph=True, backend="eager")
    assert all(torch.equal(a, b) for a, b in zip(compiled(logp), log_bounds(logp, rule), strict=True))
    with FakeTensorMode():
        lower, upper = log_bounds(torch.zeros(3, 5, dtype=torch.bfloat16), rule)
        assert (lower.shape, upper.dtype) == ((3, 5), torch.bfloat16)
        with pytest.raises(TableError, match="certified box"):
            log_bounds(torch.zeros(3), f"table:{files['kl']}@0.5")


@pytest.mark.parametrize("evaluation", ["auto", "explicit"])
@pytest.mark.parametrize("name", ["kl", "tv_inside"])
def test_a_loss_with_a_table_is_the_loss_with_its_bounds(
    files: dict[str, Path], random_batch: Callable[..., dict[str, Tensor]], name: str, evaluation: str
) -> None:
    """The mean over sequences of the mean over tokens of `−min(r A, clip(r) A)`, the clip written out here."""
    rule = f"table:{files[name]}@{DELTA}:10"
    batch = random_batch(5, shape=(6, 40))
    batch["mask"] = torch.ones(6, 40, dtype=torch.bool)
    exact = parse(rule).log_bounds(batch["old_logp"].numpy())
    lower, upper = torch.from_numpy(exact.lower), torch.from_numpy(exact.upper)
    expected, found = (batch["logp"].detach().clone().requires_grad_() for _ in range(2))
    log_ratio = expected - batch["old_logp"]
    clipped = torch.minimum(torch.maximum(log_ratio, lower), upper)
    objective = torch.minimum(log_ratio.exp() * batch["advantages"], clipped.exp() * batch["advantages"])
    (-objective.mean()).backward()
    loss, _ = policy_loss(**{**batch, "logp": found}, rule=rule, evaluation=evaluation)
    loss.backward()
    assert torch.allclose(loss.detach(), -objective.mean().detach(), rtol=1e-12)
    assert expected.grad is not None and found.grad is not None
    assert torch.allclose(found.grad, expected.grad, rtol=1e-12, atol=1e-15)
    assert 10 < int((expected.grad == 0).sum()) < 200  # clipped tokens, and others


def test_a_loss_over_a_schedule_of_radii(files: dict[str, Path], random_batch: Callable[..., dict[str, Tensor]]) -> None:
    schedule = parse_schedule(f"schedule:linear:0.051:4:table:{files['kl']}@0.05:10")
    batch = random_batch(2)
    for step in range(6):
        rule = schedule.at(step)
        found, _ = policy_loss(**batch, rule=rule)
        band, _ = policy_loss(**batch, rule=f"band:kl:{schedule.delta(step)!r}:10")
        assert abs(float(found - band)) <= 1.1e-3 * 10 * float(batch["advantages"].abs().max())
        assert torch.equal(found, policy_loss(**batch, rule=str(rule))[0])
