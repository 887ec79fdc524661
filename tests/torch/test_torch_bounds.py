"""Tensor bounds against the float64 library, on every dtype, at the edges, and under torch.compile."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import mpmath
import numpy as np
import pytest
import torch

from bandtheory.catalogue import examples
from bandtheory.rules import AdaptiveClip, Band, RatioClip, RelaxedBand, Rule, parse
from bandtheory.tabulation import QUANTITIES
from bandtheory.torch import TensorBounds, bounds, log_bounds, lookup
from bandtheory.torch.bounds import log_bound_on_side
from bandtheory.torch.formulas import device_program

OTHER = [
    "kl:0.05:10",
    "kl:0.001",
    "squared_hellinger:0.2",
    "hockey_stick:1.2:0",
    "renyi:2:1",
    "(u-1)*log(u) + abs(u-1):1",
    "exp(u-1)-u:0.05",
    "exp(1/u-1)-1:0.05",
]
BANDS = [*(f"{name}:0.05" for name in examples()), *OTHER]
RULES = ["none", "clip", "clip_higher", "dcpo", "relaxed", *("band:" + band for band in BANDS)]
Bounds = Callable[[torch.Tensor, Rule | str], TensorBounds]
both = pytest.mark.parametrize("function", [log_bounds, bounds])
GRID = -np.concatenate([np.geomspace(1e-30, 104, 1001), [700.0, 1e4]])


def spacing(values: np.ndarray, dtype: torch.dtype) -> np.ndarray:
    """One unit in the last place of `dtype` at each value."""
    exponent = np.floor(np.log2(np.maximum(np.abs(values), torch.finfo(dtype).tiny)))
    return np.asarray(torch.finfo(dtype).eps * 2.0**exponent)


def on_device(logp: torch.Tensor, rule: str) -> list[torch.Tensor]:
    """The formulas that run on an accelerator, here on CPU tensors."""
    return [bound.to(logp.dtype) for bound in device_program(rule)(logp.double())]


@pytest.mark.parametrize("path", [log_bounds, on_device])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_agrees_with_the_library(path: Callable[..., Iterable[torch.Tensor]], rule: str, dtype: torch.dtype) -> None:
    logp = torch.tensor(GRID, dtype=torch.float64).to(dtype)
    logp = logp[torch.isfinite(logp)]
    exact = parse(rule).log_bounds(logp.double().numpy())
    for ours, reference in zip(path(logp, rule), exact, strict=True):
        assert ours.dtype == dtype
        value = ours.double().numpy()
        finite = np.abs(reference) < torch.finfo(dtype).max
        assert np.isfinite(value[finite]).all()
        np.testing.assert_array_equal(value[~finite], np.copysign(np.inf, reference[~finite]))
        if dtype == torch.float64:  # without the high-precision fallback a lower bound next to saturation keeps ten digits
            tolerance = 1e-9 * np.abs(reference[finite])
        else:
            units = 2.0 if dtype == torch.float32 and path is log_bounds else 0.51
            tolerance = units * spacing(reference[finite], dtype)
        assert np.all(np.abs(value[finite] - reference[finite]) <= tolerance)


@pytest.mark.parametrize("rule", RULES)
def test_ratios_are_right_to_2_units(rule: str) -> None:
    """The reference has 1e-10 of each log-bound b, so |b| times that of its exponential."""
    generator = np.random.default_rng(0)
    few = "exp(" in rule  # its bounds are solved one by one
    logp = -np.concatenate([-GRID, generator.uniform(0, 104, 100 if few else 20_000), 10 ** generator.uniform(-6, 1, 100)])
    tensor = torch.from_numpy(logp).float()
    logs = parse(rule).log_bounds(tensor.double().numpy())
    for ours, log_bound in zip(bounds(tensor, rule), logs, strict=True):
        with np.errstate(over="ignore"):
            exact = np.exp(log_bound)
        value, largest, least = ours.double().numpy(), 2.0**128, torch.finfo(torch.float32).tiny
        np.testing.assert_array_equal(value[exact > largest], np.inf)
        np.testing.assert_array_equal(value[exact == 0], 0.0)
        normal, denormal = (exact >= least) & (exact < largest), (exact > 0) & (exact < least)
        units = np.abs(np.minimum(value[normal], largest) - exact[normal]) / spacing(exact[normal], torch.float32)
        assert np.all(units <= 2 + 1e-10 * 2**24 * np.abs(log_bound[normal]))
        assert np.all(np.abs(value[denormal] - exact[denormal]) <= 4 * 2.0**-149)


@pytest.mark.parametrize("rule", RULES)
def test_float64_ratios_are_the_exponentials(rule: str) -> None:
    logp = torch.tensor([*GRID[::20], math.nan, -math.inf, 0.0, 1e-3], dtype=torch.float64)
    for ours, log_bound in zip(bounds(logp, rule), log_bounds(logp, rule), strict=True):
        torch.testing.assert_close(ours, log_bound.exp(), rtol=1e-15, atol=0, equal_nan=True)


def test_ratios_by_hand() -> None:
    """tv: 1 ± δ/p; a clip: 1 − low and 1 + high."""
    logp = torch.tensor([0.5, 0.04]).log()
    assert [side.tolist() for side in bounds(logp, "band:tv:0.05")] == [
        [pytest.approx(0.9, rel=2e-7), 0.0],
        [pytest.approx(1.1, rel=2e-7), pytest.approx(2.25, rel=2e-7)],
    ]
    assert [side.tolist() for side in bounds(logp.double(), "clip:0.1,0.3")] == [[0.9, 0.9], [1.3, 1.3]]


def test_a_ratio_of_many_nats_is_more_precise_than_an_exponential() -> None:
    """tv: at log p = −60 the upper bound is 1 + δ e⁶⁰, whose logarithm of 57 is stored to 2e-6."""
    logp = -torch.linspace(59, 61, 1001)
    exact = 1 + 0.05 * torch.exp(-logp.double())
    error = [
        (side.double() / exact - 1).abs().max()
        for side in (bounds(logp, "band:tv:0.05").upper, log_bounds(logp, "band:tv:0.05").upper.exp())
    ]
    assert error[0] < 2 * 2.0**-23 < 2.0**-20 < error[1]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_hostile_values_of_ratios(dtype: torch.dtype) -> None:
    logp = torch.tensor([math.nan, 1e-3, -math.inf, -0.0, 0.0], dtype=dtype)
    lower, upper = bounds(logp, "band:kl:0.05:10")
    assert torch.isnan(lower).tolist() == torch.isnan(upper).tolist() == [True, False, False, False, False]
    assert lower[2] == 0 and upper[2].item() == pytest.approx(10, rel=1e-15)
    for position in (1, 3, 4):  # above zero counts as zero: lower is e^−δ, upper 1
        assert lower[position].item() == pytest.approx(torch.tensor(math.exp(-0.05), dtype=dtype).item(), rel=1e-15)
        assert upper[position] == 1
    assert bounds(torch.tensor([-math.inf]), "band:tv:0.05").upper.item() == math.inf


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_hostile_values(dtype: torch.dtype) -> None:
    logp = torch.tensor([math.nan, 1e-3, -math.inf, -0.0, 0.0], dtype=dtype)
    lower, upper = log_bounds(logp, "band:kl:0.05:10")
    assert torch.isnan(lower).tolist() == torch.isnan(upper).tolist() == [True, False, False, False, False]
    assert lower[2] == -math.inf
    assert upper[2] == torch.tensor(math.log(10), dtype=dtype)
    for position in (1, 3, 4):  # above zero counts as zero: lower is log e^−δ, upper 0
        assert lower[position].item() == pytest.approx(torch.tensor(-0.05, dtype=dtype).item(), rel=1e-15)
        assert upper[position] == 0


def test_without_a_cap_an_impossible_token_is_unbounded() -> None:
    assert log_bounds(torch.tensor([-math.inf]), "band:tv:0.05").upper.item() == math.inf


@both
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3, 4)])
def test_any_shape(function: Bounds, shape: tuple[int, ...]) -> None:
    lower, upper = function(-torch.rand(shape) - 0.1, "band:kl:0.05")
    assert lower.shape == upper.shape == shape


def test_a_long_tensor_agrees_with_a_piece_of_it() -> None:
    logp = -torch.rand(2, 40_000, generator=torch.Generator().manual_seed(0)) * 5
    whole = log_bounds(logp, "band:kl:0.05")
    piece = log_bounds(logp[1, 30_000:30_100], "band:kl:0.05")
    torch.testing.assert_close(whole.upper[1, 30_000:30_100], piece.upper, rtol=2e-7, atol=0)


@both
def test_non_contiguous_input(function: Bounds) -> None:
    logp = -torch.rand(4, 6).T - 0.1
    assert torch.equal(function(logp, "band:tv:0.05").upper, function(logp.contiguous(), "band:tv:0.05").upper)


@pytest.mark.parametrize("rule", [RelaxedBand("kl", 0.05, None, 0.9, 3.0), AdaptiveClip(0.16, 0.2, 5.0)], ids=str)
def test_every_field_of_a_rule_counts(rule: Rule) -> None:
    logp = torch.tensor([-1e-3, -8.0], dtype=torch.float64)
    for ours, reference in zip(log_bounds(logp, rule), rule.log_bounds(logp.numpy()), strict=True):
        np.testing.assert_allclose(ours.numpy(), reference, rtol=1e-14)


@both
def test_no_gradient_flows(function: Bounds) -> None:
    lower, upper = function(torch.tensor([-1.0], requires_grad=True), "band:kl:0.05")
    assert not lower.requires_grad
    assert not upper.requires_grad


@both
@pytest.mark.parametrize("rule", ["band:kl:0.05:10", Band("tv", 0.05), RatioClip(), "relaxed"], ids=str)
def test_compiles_into_one_graph(function: Bounds, rule: Rule | str) -> None:
    logp = -torch.rand(64) - 0.1
    compiled = torch.compile(lambda x: function(x, rule), fullgraph=True, backend="aot_eager")
    for ours, eager in zip(compiled(logp), function(logp, rule), strict=True):
        assert torch.equal(ours, eager)


def test_both_quantities_in_one_graph() -> None:
    logp = -torch.rand(64) - 0.1
    compiled = torch.compile(lambda x: (*log_bounds(x, "clip"), *bounds(x, "clip")), fullgraph=True, backend="aot_eager")
    for ours, eager in zip(compiled(logp), (*log_bounds(logp, "clip"), *bounds(logp, "clip")), strict=True):
        assert torch.equal(ours, eager)


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_custom_operator_is_well_formed(quantity: str) -> None:
    torch.library.opcheck(torch.ops.bandtheory.bounds, (-torch.rand(8) - 0.1, "band:kl:0.05", quantity))


@both
def test_vmap(function: Bounds) -> None:
    logp = -torch.rand(3, 5) - 0.1
    mapped = torch.vmap(lambda row: function(row, "band:kl:0.05").upper, in_dims=1, out_dims=1)(logp)
    assert torch.equal(mapped, function(logp, "band:kl:0.05").upper)


@both
def test_bad_input(function: Bounds) -> None:
    with pytest.raises(TypeError, match=r"floating-point tensor \(.*\), got torch.int64"):
        function(torch.tensor([1]), "clip")
    with pytest.raises(TypeError, match="got list"):
        function([-1.0], "clip")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="did you mean 'band'"):
        function(torch.tensor([-1.0]), "bend:kl:0.05")


@pytest.mark.parametrize("quantity", QUANTITIES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("rule", ["band:kl:0.05", "clip"])
def test_the_layout_is_the_one_that_tracing_expects(rule: str, dtype: torch.dtype, quantity: str) -> None:
    """Transposed, expanded and sliced inputs: the fake operator promises contiguous bounds, and compiled code relies on it."""
    whole = -torch.rand(4, 6, dtype=torch.float64).to(dtype) - 0.1
    for logp in (whole.T, whole[:, :1].expand(4, 5), whole[::2, 1:4]):
        torch.library.opcheck(torch.ops.bandtheory.bounds, (logp, rule, quantity))


@pytest.mark.parametrize("rule", ["none", "clip:0.2,0.28"])
def test_constant_rules_keep_nan(rule: str) -> None:
    lower, upper = log_bounds(torch.tensor([math.nan, -1.0, -math.inf]), rule)
    interval = parse(rule).log_bounds(np.array([-1.0]))
    for bound, expected in zip((lower, upper), interval, strict=True):
        torch.testing.assert_close(bound, torch.tensor([math.nan, *[float(np.ravel(expected)[0])] * 2]), equal_nan=True)


@pytest.mark.parametrize(
    ("rule", "interval"), [("none", (0.0, math.inf)), ("clip:0.1,0.28", (0.9, 1.28)), ("clip:1,0", (0.0, 1.0))]
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_constant_ratios(rule: str, interval: tuple[float, float], dtype: torch.dtype) -> None:
    found = bounds(torch.tensor([math.nan, -1.0, -0.0, 1e-3, -math.inf], dtype=dtype), rule)
    for side, bound in zip(found, interval, strict=True):
        torch.testing.assert_close(side, torch.tensor([math.nan, *[bound] * 4], dtype=dtype), rtol=0, atol=0, equal_nan=True)


def test_a_constant_is_rounded_once() -> None:
    """1 + 2⁻⁸ + 2⁻⁴⁰ is above the tie of two bfloat16 numbers, and its float32 on it."""
    assert bounds(torch.zeros(1).bfloat16(), f"clip:0,{2.0**-8 + 2.0**-40}").upper.item() == 1 + 2.0**-7


def test_dcpo_without_room_on_one_side() -> None:
    """ε = 0 is the point 1 for every token, also where p = 0."""
    lower, upper = log_bounds(torch.tensor([-math.inf, -200.0, -1.0, 0.0]), "dcpo:0,0")
    assert lower.tolist() == upper.tolist() == [0.0] * 4


def test_a_power_form_holds_for_any_probability() -> None:
    """|u − 1|^60 at δ = 0.05: log upper = log(1 + (δ/(p + p^60 …))^(1/60)) → (x + log δ)/60 for log p = −x."""
    x = np.array([2e3, 1.1e6, 1e9])
    upper = log_bounds(-torch.tensor(x), "band:vajda:60:0.05").upper
    np.testing.assert_allclose(upper.numpy(), (x + math.log(0.05)) / 60, rtol=1e-12)
    np.testing.assert_allclose(log_bounds(-torch.tensor(x).float(), "band:vajda:60:0.05").upper, upper, rtol=3e-7)


def test_threads_may_ask_at_once() -> None:
    """mpmath has one precision for all threads: doubtful tokens of two threads used to spoil each other's digits, or hang."""
    logp = torch.full((5,), math.log(0.2), dtype=torch.float64) + torch.linspace(1e-14, 1e-12, 5, dtype=torch.float64)
    rules = [f"band:tv:0.2{i}" for i in range(6)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda rule: log_bounds(logp, rule), rules))
    for rule, one in zip(rules, found, strict=True):
        assert torch.equal(one.lower, log_bounds(logp, rule).lower)
    assert mpmath.mp.dps == 15


@both
@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.int32, torch.complex64], ids=str)
def test_other_dtypes_are_refused(function: Bounds, dtype: torch.dtype) -> None:
    with pytest.raises(TypeError, match="float64, float32, float16 or bfloat16"):
        function(torch.zeros(3).to(dtype), "clip")


@both
@pytest.mark.parametrize("rule", [None, 5, [0.1, 0.2]])
def test_other_rules_are_refused(function: Bounds, rule: object) -> None:
    with pytest.raises(TypeError, match=r"rule: expected a rule of bandtheory\.rules or its string, got"):
        function(torch.zeros(3), rule)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("rule", ["band:kl:0.05:10", "band:tv:0.05", "clip", "dcpo", "band:exp(u-1)-u:0.05"])
def test_one_side_is_that_side_of_both(rule: str, dtype: torch.dtype) -> None:
    logp = torch.tensor(GRID, dtype=torch.float64).to(dtype)
    logp[::50] = math.nan
    is_upper = torch.arange(len(logp)) % 3 > 0
    lower, upper = log_bounds(logp, rule)
    torch.testing.assert_close(
        log_bound_on_side(logp, is_upper, rule), torch.where(is_upper, upper, lower), rtol=0, atol=0, equal_nan=True
    )
    logp, is_upper = logp[1:9].view(2, 4), is_upper[1:9].view(2, 4)  # numbers only: opcheck takes NaN for a difference
    for inputs in ((logp.T, is_upper.T), (logp[:1].expand(3, 4), is_upper[:1].expand(3, 4))):
        torch.library.opcheck(torch.ops.bandtheory.log_bound_on_side, (*inputs, rule))


@both
@pytest.mark.parametrize("rule", ["band:kl:0.05", "band:tv:0.05:10", "dcpo"])
def test_a_device_goes_down_the_table_as_the_cpu_does(function: Bounds, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a device every token visits every level, on the CPU only those that need it: the same bits come out."""
    generator = torch.Generator().manual_seed(0)
    patterns = torch.randint(0, 2**31 - 1, (50_000,), generator=generator).to(torch.int32)
    logp = -torch.cat([patterns.view(torch.float32), 10 ** (8 * torch.rand(50_000, generator=generator) - 6)])
    expected = function(logp, rule)
    monkeypatch.setattr(lookup, "_refine_few", lookup._refine_all)
    for ours, wanted in zip(function(logp, rule), expected, strict=True):
        torch.testing.assert_close(ours, wanted, rtol=0, atol=0, equal_nan=True)
