"""Theorem 9 in code: one evaluation of the divergence clips the tokens that explicit bounds clip, and no others."""

from __future__ import annotations

import math
from collections.abc import Callable

import mpmath
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from bandtheory.catalogue import examples
from bandtheory.rules import Band, parse
from bandtheory.torch import implicit, log_bounds, policy_loss
from bandtheory.torch.implicit import band_test, implicit_bounds, is_implicit

TOKENS = 4000
NEAR = 1e-9  # a log-ratio this close to its bound, relatively, may fall on either side by rounding
RADII = (1e-3, 0.05, 1.0)

LossAndGradient = Callable[..., tuple[Tensor, Tensor]]


def _uniform(generator: torch.Generator, low: float, high: float) -> Tensor:
    return low + (high - low) * torch.rand(TOKENS, generator=generator, dtype=torch.float64)


def _batch_around(rule: str, seed: int) -> dict[str, Tensor]:
    """Old probabilities from 1e-30 to 1 − 1e-12; ratios on both sides of either bound, from 1e-8 of it away, or anywhere."""
    generator = torch.Generator().manual_seed(seed)
    kind = torch.randint(3, (TOKENS,), generator=generator)
    scales = [-torch.exp(_uniform(generator, math.log(1e-12), math.log(69.0))), _uniform(generator, -69.0, 0.0)]
    old_logp = torch.stack([*scales, _uniform(generator, -3.0, 0.0)]).gather(0, kind[None])[0]
    bounds = parse(rule).log_bounds(old_logp.numpy())
    side = torch.rand(TOKENS, generator=generator) < 0.5
    bound = torch.where(side, torch.from_numpy(bounds.upper), torch.from_numpy(bounds.lower))
    away = torch.exp(_uniform(generator, math.log(1e-8), 0.0)) * _uniform(generator, -1.0, 1.0).sign()
    anywhere = 0.7 * torch.randn(TOKENS, generator=generator, dtype=torch.float64)
    bounded = (bound.abs() < 10) & (_uniform(generator, 0.0, 1.0) < 0.9)
    logp = old_logp + torch.where(bounded, bound * (1 + away), anywhere)
    # an advantage in the direction of the ratio, but for every tenth token
    sign = (logp - old_logp).sign() * torch.where(_uniform(generator, 0.0, 1.0) < 0.9, 1.0, -1.0)
    advantages = sign * _uniform(generator, 0.1, 2.0)
    relevant = torch.where(advantages > 0, torch.from_numpy(bounds.upper), torch.from_numpy(bounds.lower))
    near = ((logp - old_logp - relevant).abs() <= NEAR * relevant.abs()) & relevant.isfinite()
    return {"logp": logp, "old_logp": old_logp, "advantages": advantages, "mask": ~near}


def _assert_same(batch: dict[str, Tensor], loss_and_gradient: LossAndGradient, **options: object) -> Tensor:
    """Loss, gradient and statistics of both evaluations agree; returns the gradient."""
    (loss, gradient), (implicit_loss, implicit_gradient) = (
        loss_and_gradient(batch, evaluation=evaluation, **options) for evaluation in ("explicit", "implicit")
    )
    assert torch.equal(torch.nan_to_num(implicit_gradient, 1e99), torch.nan_to_num(gradient, 1e99))
    torch.testing.assert_close(implicit_loss, loss, rtol=1e-12, atol=0.0, equal_nan=True)
    statistics = [policy_loss(**batch, evaluation=evaluation, **options)[1] for evaluation in ("explicit", "implicit")]
    assert torch.equal(*(torch.nan_to_num(torch.stack(values), 1e99) for values in statistics))
    return gradient


# --- the same as explicit bounds ---------------------------------------------------------------------------------------------


def _holds_everything_below(name: str, delta: float) -> bool:
    """Whether no D(Q‖P) exceeds δ: its supremum is f(0) + f'(∞)."""
    entropy = {weight: -weight * math.log(weight) - (1 - weight) * math.log(1 - weight) for weight in (0.1, 0.5, 0.7)}
    supremum = {
        "tv": 1.0,
        "jensen_shannon": entropy[0.5],
        "skew_jensen_shannon:0.1": entropy[0.1],
        "skew_jensen_shannon:0.7": entropy[0.7],
        "hockey_stick:1.2": 1.0,
        "hockey_stick:2": 1.0,
    }
    return delta >= supremum.get(name, math.inf)


@pytest.mark.parametrize("delta", RADII)
@pytest.mark.parametrize("name", examples())
def test_every_divergence(name: str, delta: float, loss_and_gradient: LossAndGradient) -> None:
    rule = f"band:{name}:{delta}"
    batch = _batch_around(rule, seed=len(name))
    clear = batch["mask"]
    assert (~clear).sum() < 0.01 * TOKENS
    gradient = _assert_same(batch, loss_and_gradient, rule=rule)
    clipped = (gradient == 0) & clear
    kept = (gradient != 0) & clear
    for side, emptied in ((batch["advantages"] > 0, False), (batch["advantages"] < 0, _holds_everything_below(name, delta))):
        assert (kept & side).sum() > 200
        assert ((clipped & side).sum() == 0) if emptied else ((clipped & side).sum() > 200)


@pytest.mark.parametrize(
    "rule",
    [
        "band:kl:0.05:10",
        "band:kl:1:1.3",
        "band:tv:0.05:3",
        "band:hockey_stick:1.2:0",
        "band:kl:0",
        "relaxed",
        "relaxed:jensen_shannon:0.02:inf:0.3,0.1",
        "relaxed:tv:0.1:1.1",
        "band:(u-1)*log(u) + abs(u-1):1",
    ],
)
@pytest.mark.parametrize("dual_clip", [None, 1.5])
def test_every_kind_of_rule(rule: str, dual_clip: float | None, loss_and_gradient: LossAndGradient) -> None:
    batch = _batch_around(rule, seed=1)
    assert is_implicit("implicit", rule, torch.float64, "cpu")
    gradient = _assert_same(batch, loss_and_gradient, rule=rule, dual_clip=dual_clip)
    assert min(((gradient == 0) & batch["mask"]).sum(), (gradient != 0).sum()) > (300 if rule != "band:kl:0" else 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("rule", ["band:kl:0.05:10", "band:reverse_kl:0.001", "relaxed"])
def test_lower_precision(rule: str, dtype: torch.dtype, loss_and_gradient: LossAndGradient) -> None:
    """Ratios come from rounded log-probabilities; those within float32 rounding of a rounded bound are left out."""
    batch = {name: tensor.to(dtype) for name, tensor in _batch_around(rule, seed=2).items() if name != "mask"}
    log_ratio = batch["logp"].float() - batch["old_logp"].float()
    bounds = log_bounds(batch["old_logp"].float(), rule)
    relevant = torch.where(batch["advantages"] > 0, bounds.upper, bounds.lower)
    batch["mask"] = ((log_ratio - relevant).abs() > 4e-7 * relevant.abs()) | relevant.isinf()
    assert (~batch["mask"]).sum() < 0.2 * TOKENS
    losses, gradients = zip(
        *(loss_and_gradient(batch, rule=rule, evaluation=evaluation) for evaluation in ("explicit", "implicit")), strict=True
    )
    assert torch.equal(*gradients)
    torch.testing.assert_close(*losses, rtol=1e-6, atol=0.0)
    assert (gradients[0] == 0)[batch["mask"]].sum() > 300


@pytest.mark.parametrize("name", ["kl", "tv", "jensen_shannon", "renyi:0.5"])
def test_any_device_decides_alike(name: str) -> None:
    """The operations that run where shapes must not depend on data, here on CPU tensors."""
    rule = f"band:{name}:0.05:10"
    batch = _batch_around(rule, seed=3)
    log_ratio = (batch["logp"] - batch["old_logp"]).where(batch["mask"], 0.0)
    on_host = implicit_bounds(log_ratio, batch["old_logp"], rule)
    anywhere = implicit._of_every_token(log_ratio, batch["old_logp"], rule)
    assert on_host.lower.isfinite().sum() > 300
    assert on_host.upper.isfinite().sum() > 300
    for bound, other in zip(on_host, anywhere, strict=True):
        torch.testing.assert_close(other, bound, rtol=1e-12, atol=0.0)


# --- the same as other people's definition -----------------------------------------------------------------------------------


DPPO_DIVERGENCES = {
    "kl": lambda p, q: p * torch.log(p / q) + (1 - p) * torch.log((1 - p) / (1 - q)),
    "reverse_kl": lambda p, q: q * torch.log(q / p) + (1 - q) * torch.log((1 - q) / (1 - p)),
    "tv": lambda p, q: (p - q).abs(),
}


@pytest.mark.parametrize("delta", [0.005, 0.05, 0.2])
@pytest.mark.parametrize("name", DPPO_DIVERGENCES)
def test_dppo_masks_the_same_tokens(name: str, delta: float, loss_and_gradient: LossAndGradient) -> None:
    """arXiv 2602.04879: no gradient where A (r − 1) > 0 and the two-outcome divergence of old and new policy exceeds δ."""
    generator = torch.Generator().manual_seed(4)
    p, q = _uniform(generator, 0.001, 0.999), _uniform(generator, 0.001, 0.999)
    q = torch.where(_uniform(generator, 0.0, 1.0) < 0.7, p * (1 + 0.4 * (1 - p) * (2 * q - 1)), q)
    advantages = torch.randn(TOKENS, generator=generator, dtype=torch.float64)
    level = DPPO_DIVERGENCES[name](p, q)
    masked = (level > delta) & torch.where(advantages > 0, q > p, q < p)
    assert (level - delta).abs().min() > 1e-9 * delta  # rounding decides nowhere
    assert (q / p).max() < math.exp(20)
    for sign in (advantages > 0, advantages < 0):
        assert min((masked & sign).sum(), (~masked & sign).sum()) > 100

    batch = {"logp": q.log(), "old_logp": p.log(), "advantages": advantages, "mask": torch.ones(TOKENS)}
    _, gradient = loss_and_gradient(batch, rule=f"band:{name}:{delta}", evaluation="implicit")
    assert torch.equal(gradient == 0, masked)
    torch.testing.assert_close(gradient, torch.where(masked, 0.0, -advantages * q / p / TOKENS), rtol=1e-12, atol=0.0)


PRECISE_GENERATORS = {
    "kl": lambda u: -mpmath.log(u),
    "tv": lambda u: abs(u - 1) / 2,
    "pearson_chi2": lambda u: (u - 1) ** 2,
    "squared_hellinger": lambda u: (mpmath.sqrt(u) - 1) ** 2,
    "jeffreys": lambda u: (u - 1) * mpmath.log(u),
}


@settings(deadline=None, derandomize=True, max_examples=300)
@given(
    name=st.sampled_from(sorted(PRECISE_GENERATORS)),
    delta=st.floats(1e-6, 3.0),
    log_size=st.floats(math.log(1e-12), math.log(69.0)),
    share=st.floats(-19.0, 19.0),
)
def test_one_token_in_sixty_digits(name: str, delta: float, log_size: float, share: float) -> None:
    """g(p, r) > δ, or r p > 1, decided by the definition."""
    logp = -math.exp(log_size)
    # for p near 1 the ratios that matter are within 1 − p of 1 above it, and anywhere below
    log_ratio = share / 10 * min(1.0, -logp) if share > 0 else share
    assume(log_ratio != 0 and log_ratio + logp != 0)  # at r p = 1 the sign of c is that of a rounding error
    with mpmath.workdps(60):
        p, r = mpmath.exp(mpmath.mpf(logp)), mpmath.exp(mpmath.mpf(log_ratio))
        c, f = (1 - r * p) / (1 - p), PRECISE_GENERATORS[name]
        outside = c < 0
        if c > 0:
            level = p * f(r) + (1 - p) * f(c)
            assume(abs(level / delta - 1) > 1e-10)
            outside = level > delta
    tensors = (torch.tensor([value], dtype=torch.float64) for value in (log_ratio, logp))
    assert band_test(f"band:{name}:{delta!r}")(*tensors).item() == outside


# --- edges -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "dtype"),
    [
        *((rule, torch.float64) for rule in ("band:tv:0.05", "band:reverse_kl:1", "band:hockey_stick:1.2:0", "band:kl:0")),
        *((rule, dtype) for rule in ("band:kl:0.05:10", "relaxed") for dtype in (torch.float64, torch.float32)),
    ],
    ids=str,
)
def test_edges(rule: str, dtype: torch.dtype, loss_and_gradient: LossAndGradient) -> None:
    """Every pair of p = 0, p = 1, above 1, ordinary and NaN, with the new policy on any of them, and any advantage."""
    values = [-math.inf, -800.0, -30.0, -1.0, -0.3, -1e-3, -1e-30, -0.0, 1e-3, math.inf, math.nan]
    grid = torch.cartesian_prod(*[torch.tensor(values, dtype=dtype)] * 2, torch.tensor([1.0, -1.0, 0.0, math.nan], dtype=dtype))
    logp, old_logp, advantages = grid.T.contiguous()
    bounds = log_bounds(old_logp, rule)
    log_ratio = logp - old_logp
    # r = 1/p is just outside kl's band, but equal to the bound when that is rounded
    rounded = (log_ratio != 0) & (log_ratio == torch.where(advantages > 0, bounds.upper, bounds.lower)) & log_ratio.isfinite()
    assert rounded.sum() < 20
    batch = {"logp": logp, "old_logp": old_logp, "advantages": advantages, "mask": ~rounded}
    gradient = _assert_same(batch, loss_and_gradient, rule=rule, dual_clip=10.0)
    assert torch.equal(gradient.isnan(), log_ratio.isnan() | advantages.isnan())
    _assert_same({**batch, "mask": ~rounded & ~gradient.isnan()}, loss_and_gradient, rule=rule, dual_clip=10.0)


def test_a_ratio_of_exactly_one_over_p_is_judged_by_f_at_zero() -> None:
    """r = 1/p puts all probability on the token: inside tv's band iff 1 − p ≤ δ, outside kl's whatever δ is."""
    old_logp = torch.tensor([0.75, 0.76], dtype=torch.float64).log()
    assert implicit_bounds(-old_logp, old_logp, "band:tv:0.245").upper.isfinite().tolist() == [True, False]
    assert implicit_bounds(-old_logp, old_logp, "band:kl:9").upper.isfinite().tolist() == [True, True]


def test_radius_zero_leaves_the_point_one() -> None:
    """However close: |r − 1|³ underflows here."""
    log_ratio = torch.tensor([1e-150, 0.0, -1e-150], dtype=torch.float64)
    assert band_test("band:vajda:3:0")(log_ratio, torch.full_like(log_ratio, -1.0)).tolist() == [True, False, True]


@pytest.mark.parametrize("garbage", [math.nan, math.inf, -math.inf, 200.0, -200.0])
def test_masked_values_are_never_looked_at(garbage: float, loss_and_gradient: LossAndGradient) -> None:
    batch = _batch_around("band:kl:0.05:10", seed=5)
    batch["mask"] = batch["mask"] & (torch.arange(TOKENS) % 3 > 0)
    clean = loss_and_gradient(batch, rule="band:kl:0.05:10", evaluation="implicit")
    dirty = {name: value if name == "mask" else value.where(batch["mask"], garbage) for name, value in batch.items()}
    for ours, expected in zip(loss_and_gradient(dirty, rule="band:kl:0.05:10", evaluation="implicit"), clean, strict=True):
        assert torch.equal(ours, expected)


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (2, 3, 4)], ids=str)
def test_any_shape(shape: tuple[int, ...], loss_and_gradient: LossAndGradient) -> None:
    old_logp = torch.full(shape, -1.0, dtype=torch.float64)
    batch = {"logp": old_logp + 0.5, "old_logp": old_logp, "advantages": torch.ones(shape), "mask": torch.ones(shape)}
    gradient = _assert_same(batch, loss_and_gradient, rule="band:kl:0.05:10")
    assert torch.equal(gradient, torch.zeros(shape))


# --- what it is for ----------------------------------------------------------------------------------------------------------


def test_only_clipped_tokens_are_solved(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = _batch_around("band:kl:0.05", seed=6)
    solved = []
    original = implicit.host_bounds
    monkeypatch.setattr(implicit, "host_bounds", lambda logp, rule: solved.append(logp.numel()) or original(logp, rule))
    statistics = policy_loss(**batch, rule="band:kl:0.05", evaluation="implicit")[1]
    clipped = (statistics.clipped_up + statistics.clipped_down) * statistics.tokens
    assert solved == [round(clipped.item())]
    assert 300 < solved[0] < TOKENS / 2


def test_g_is_evaluated_once_for_a_token_that_moves_on(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = _batch_around("band:kl:0.05", seed=7)
    evaluated = []
    original = implicit.BandTest._log_g
    monkeypatch.setattr(
        implicit.BandTest, "_log_g", lambda self, x, log_p: evaluated.append(x.numel()) or original(self, x, log_p)
    )
    policy_loss(**batch, rule="band:kl:0.05", evaluation="implicit")
    moves_on = batch["mask"] & (batch["advantages"] * (batch["logp"] - batch["old_logp"]) > 0)
    assert sum(evaluated) == moves_on.sum()


@pytest.mark.parametrize(
    ("evaluation", "rule", "dtype", "device", "expected"),
    [
        ("auto", "band:kl:0.05:10", torch.float64, "cpu", True),
        ("auto", "relaxed", torch.float64, "cpu", True),
        ("auto", "band:kl:0.05:10", torch.float32, "cpu", False),  # bounds by table
        ("auto", "band:kl:0.05:10", torch.float64, "cuda", False),
        ("auto", "band:tv:0.05", torch.float64, "cpu", False),  # closed form
        ("implicit", "band:tv:0.05", torch.float32, "cuda", True),
        ("explicit", "band:kl:0.05:10", torch.float64, "cpu", False),
        ("implicit", "clip", torch.float64, "cpu", False),  # no root
        ("implicit", "dcpo", torch.float64, "cpu", False),
        ("implicit", "none", torch.float64, "cpu", False),
        ("implicit", "band:exp(u-1)-u:0.05", torch.float64, "cpu", False),  # g overflows
    ],
)
def test_choice(evaluation: str, rule: str, dtype: torch.dtype, device: str, expected: bool) -> None:
    assert is_implicit(evaluation, rule, dtype, device) is expected


@pytest.mark.parametrize("rule", ["none", "clip", "dcpo", "band:exp(u-1)-u:0.05"])
def test_rules_that_stay_explicit(rule: str, loss_and_gradient: LossAndGradient) -> None:
    _assert_same(_batch_around(rule, seed=8), loss_and_gradient, rule=rule)


def test_given_bounds_stay_explicit(loss_and_gradient: LossAndGradient) -> None:
    batch = _batch_around("band:kl:0.05", seed=9)
    _assert_same(batch, loss_and_gradient, rule=log_bounds(batch["old_logp"], "band:kl:0.05"))


def test_an_unknown_evaluation_is_refused() -> None:
    ones = torch.ones(2, 3)
    with pytest.raises(ValueError, match=r"evaluation: 'root' is none of 'auto', 'explicit', 'implicit'"):
        policy_loss(ones, ones, ones, ones, rule="none", evaluation="root")  # type: ignore[arg-type]


def test_the_test_of_a_rule_without_a_band_is_refused() -> None:
    with pytest.raises(TypeError, match=r"rule: expected a band or a relaxed band, got clip:0.2,0.2"):
        implicit_bounds(torch.zeros(1), torch.zeros(1), "clip")


# --- one node of a graph -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("evaluation", ["auto", "implicit"])
@pytest.mark.parametrize("rule", ["band:kl:0.05:10", Band("tv", 0.05), "relaxed", "clip"], ids=str)
def test_compiles_into_one_graph(rule: object, evaluation: str) -> None:
    batch = _batch_around(str(rule), seed=10)
    torch.compiler.reset()
    compiled = torch.compile(
        lambda **inputs: policy_loss(**inputs, rule=rule, evaluation=evaluation), fullgraph=True, backend="aot_eager"
    )
    results = []
    for function in (compiled, lambda **inputs: policy_loss(**inputs, rule=rule, evaluation=evaluation)):
        logp = batch["logp"].clone().requires_grad_()
        loss, statistics = function(**{**batch, "logp": logp})
        loss.backward()
        results.append((loss.detach(), logp.grad, torch.stack(statistics)))
    torch.testing.assert_close(*results, rtol=1e-12, atol=1e-15)


def test_custom_operator_is_well_formed() -> None:
    log_ratio, old_logp = torch.linspace(-1, 1, 8), torch.linspace(-3, -0.1, 8)
    torch.library.opcheck(torch.ops.bandtheory.implicit_bounds, (log_ratio, old_logp, "band:kl:0.05"))


def test_vmap() -> None:
    log_ratio, old_logp = torch.linspace(-1, 1, 15).reshape(3, 5), torch.linspace(-3, -0.1, 15).reshape(3, 5)
    expected = implicit_bounds(log_ratio, old_logp, "band:kl:0.05")
    columns = torch.vmap(lambda x, p: implicit_bounds(x, p, "band:kl:0.05").upper, in_dims=1, out_dims=1)
    assert torch.equal(columns(log_ratio, old_logp), expected.upper)
    rows = torch.vmap(lambda x: implicit_bounds(x, old_logp[0], "band:kl:0.05").lower)
    assert torch.equal(rows(log_ratio)[0], expected.lower[0])


def test_nothing_is_read_back_from_the_device(loss_and_gradient: LossAndGradient) -> None:
    """Meta tensors have no values: `.item()`, branching on data and boolean-mask indexing all raise on them."""
    batch = {name: tensor.to("meta") for name, tensor in _batch_around("band:kl:0.05", seed=11).items()}
    loss, gradient = loss_and_gradient(batch, rule="band:kl:0.05", evaluation="implicit")
    assert (loss.shape, gradient.shape) == ((), (TOKENS,))
    assert band_test("band:kl:0.05")(batch["logp"], batch["old_logp"]).shape == (TOKENS,)
