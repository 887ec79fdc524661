"""Rules from table files, in numpy and on tensors."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

import bandtheory as bt
from bandtheory.rules import Band, RuleError, TableRule, parse
from bandtheory.tables import BandTable, TableError
from bandtheory.torch import bounds, log_bounds, policy_loss
from bandtheory.torch.formulas import device_program

FLOAT32 = 2.0**-23


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("tables")
    found = {}
    for name in ("kl", "tv", "jeffreys"):
        for inside in (False, True):
            path = folder / f"{name}{'_inside' if inside else ''}.safetensors"
            BandTable.build(name, 0.05, inside=inside).save(path)
            found[path.stem] = path
    return found


def _tokens(dtype: torch.dtype, count: int = 200_000) -> torch.Tensor:
    generator = torch.Generator().manual_seed(7)
    patterns = torch.randint(0, 0x42D00000, (count // 2,), generator=generator, dtype=torch.int32)
    ordinary = 104 * torch.rand(count // 2, generator=generator)
    return -torch.cat([patterns.view(torch.float32), ordinary]).to(dtype).clamp(max=104)


@pytest.mark.parametrize("name", ["kl", "tv", "jeffreys", "kl_inside", "tv_inside", "jeffreys_inside"])
def test_float32_tensors_follow_the_table(files, name: str) -> None:
    rule = f"table:{files[name]}"
    logp = _tokens(torch.float32)
    exact = parse(rule).log_bounds(logp.double().numpy())
    for found, bound in zip(log_bounds(logp, rule), exact, strict=True):
        computed = found.double().numpy()
        same = np.isneginf(bound)
        assert (np.isneginf(computed) == same).all()
        error = np.abs(computed[~same] - bound[~same])
        units = 5 if name.endswith("inside") else 2
        assert (error <= units * FLOAT32 * np.abs(bound[~same]) + 1e-44).all()
        if name.endswith("inside"):
            assert (np.abs(computed) <= np.abs(bound)).all()


@pytest.mark.parametrize("name", ["kl", "tv"])
def test_every_bfloat16_is_within_the_certified_error_of_the_band(files, name: str) -> None:
    patterns = torch.arange(0x8000, 0xC2D0, dtype=torch.int32).to(torch.int16)
    logp = patterns.view(torch.bfloat16)
    exact = bt.log_bounds(logp=logp.double().numpy(), divergence=name, delta=0.05)
    for found, bound in zip(log_bounds(logp, f"table:{files[name]}"), exact, strict=True):
        clipped = np.where(np.isinf(bound), bound, np.maximum(bound, -104.0))
        computed = found.double().numpy()
        finite = np.isfinite(clipped)
        assert (np.isfinite(computed) == finite).all()
        allowed = 1e-6 * 1.01 + 2.0**-8 * np.abs(clipped[finite])  # the certified error, and the rounding to bfloat16
        assert (np.abs(computed[finite] - clipped[finite]) <= allowed).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["kl_inside", "tv_inside", "jeffreys_inside"])
def test_an_inside_table_stays_inside_in_every_dtype_and_as_ratios(files, name: str, dtype: torch.dtype) -> None:
    rule, band = f"table:{files[name]}", name.removesuffix("_inside")
    logp = _tokens(dtype, 40_000)
    true = bt.log_bounds(logp=logp.double().numpy(), divergence=band, delta=0.05)
    lower, upper = (found.double().numpy() for found in log_bounds(logp, rule))
    assert (lower >= true.lower).all() and (upper <= true.upper).all() and (lower <= 0).all() and (upper >= 0).all()
    with np.errstate(over="ignore"):
        ratios = np.exp(true.lower), np.exp(true.upper)
    lower, upper = (found.double().numpy() for found in bounds(logp, rule))
    assert (lower >= ratios[0]).all() and (upper <= ratios[1]).all()


def test_float64_is_the_table_itself_on_the_cpu_and_by_the_program_of_devices(files) -> None:
    rule = f"table:{files['kl']}:10"
    logp = torch.cat([_tokens(torch.float64, 2000), torch.tensor([0.0, -math.inf, -200.0], dtype=torch.float64)])
    exact = parse(rule).log_bounds(logp.numpy())
    for found in (log_bounds(logp, rule), device_program(rule)(logp)):
        for computed, bound in zip(found, exact, strict=True):
            assert np.allclose(computed.numpy(), bound, rtol=1e-13, atol=1e-16)
    assert exact.upper.max() == math.log(10)


@pytest.mark.parametrize("evaluation", ["auto", "explicit"])
def test_a_loss_with_a_table_is_the_loss_with_its_band(files, evaluation: str) -> None:
    generator = torch.Generator().manual_seed(1)
    old = -5 * torch.rand(16, 32, generator=generator)
    advantages, mask = torch.randn(16, 1, generator=generator), torch.ones(16, 32)
    losses, gradients = [], []
    for rule in ("band:kl:0.05:10", f"table:{files['kl']}:10"):
        logp = (old + 0.5 * torch.randn(16, 32, generator=torch.Generator().manual_seed(2))).clamp(max=0).requires_grad_()
        loss, _ = policy_loss(logp, old, advantages, mask, rule=rule, evaluation=evaluation)
        loss.backward()
        losses.append(loss.detach())
        gradients.append(logp.grad)
    assert torch.allclose(*losses, rtol=1e-5)
    assert (gradients[0] != gradients[1]).sum() <= 2  # tokens within 1e-6 of a bound


def test_torch_compile_sees_a_table_as_one_operator(files) -> None:
    rule = f"table:{files['kl']}"
    logp = _tokens(torch.float32, 1000)
    compiled = torch.compile(lambda x: log_bounds(x, rule), fullgraph=True, backend="eager")
    assert all(torch.equal(a, b) for a, b in zip(compiled(logp), log_bounds(logp, rule), strict=True))


def test_strings_keep_everything(files) -> None:
    path = str(files["kl"])
    for text, rule in (
        (f"table:{path}", TableRule(path)),
        (f"table:{path}:10", TableRule(path, 10.0)),
        (f"table:{path}:inf", TableRule(path)),
    ):
        assert parse(text) == rule == parse(str(rule))


def test_a_path_that_ends_like_a_cap(files, tmp_path: Path) -> None:
    content = files["kl"].read_bytes()
    odd = tmp_path / "a:b.safetensors"
    odd.write_bytes(content)
    assert parse(str(TableRule(str(odd)))) == TableRule(str(odd))


def test_a_rule_that_asks_for_a_band_gets_its_table_or_an_error(files) -> None:
    rule = TableRule.of(Band("kl", 0.05, 10), files["kl"])
    assert rule == TableRule(str(files["kl"]), 10)
    for band, named in ((Band("tv", 0.05), "'tv'"), (Band("kl", 0.06), "0.06")):
        with pytest.raises(TableError, match=named):
            TableRule.of(band, files["kl"])


def test_bad_rules(files, tmp_path: Path) -> None:
    with pytest.raises(RuleError, match="path"):
        parse("table:")
    with pytest.raises(RuleError, match="max_ratio"):
        parse(f"table:{files['kl']}:0.5")
    with pytest.raises(TableError, match="missing"):
        parse(f"table:{tmp_path / 'missing.safetensors'}")
    with pytest.raises(TableError, match="missing"):
        log_bounds(torch.zeros(1), f"table:{tmp_path / 'missing.safetensors'}")
