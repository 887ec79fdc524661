"""The self-test passes with the operation as it is, and fails, by name, with one that is broken."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bandtheory.catalogue import examples
from bandtheory.torch import TensorBounds, log_bounds, policy_loss, selftest, selftest_checks
from bandtheory.torch.selftest import main
from bandtheory.torch.selftest_checks import Interval, deviation, expected, rank

CPU = torch.device("cpu")
QUICK = ["--device", "cpu", "--no-speed", "--workers", "1"]
RULES = ("band:kl:0.05:10", "band:tv:0.05", "clip:0.2,0.28", "dcpo", "relaxed:tv:0.05:10")


def failed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Names of the checks that failed, from the JSON that was printed."""
    return [check["name"] for check in json.loads(capsys.readouterr().out)["checks"] if not check["passed"]]


# --- the verdict -------------------------------------------------------------------------------------------------------------


def test_it_passes_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUICK, "--rules", *RULES]) == 0
    printed = capsys.readouterr().out
    assert printed.count("passed") == 5 + 2 + 1  # rules, losses, the summary
    assert printed.splitlines()[-1].startswith("right; speed was not measured: 7 checks passed on cpu")


def test_processes_find_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--device", "cpu", "--no-speed", "--json", "--rules", "clip", "dcpo", "--workers"]
    assert main([*options, "2"]) == 0
    together = json.loads(capsys.readouterr().out)
    assert main([*options, "1"]) == 0
    assert together == json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("side", "dtype"), [(0, torch.float32), (1, torch.float32), (1, torch.float64), (0, torch.bfloat16)], ids=str
)
def test_it_names_the_bounds_that_are_off(
    side: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By 4 units in the last place; by 2e-9 relative in float64, and only where one token stands last."""

    def wrong(logp: Tensor, rule: str) -> TensorBounds:
        bounds = [bound.clone() for bound in log_bounds(logp, rule)]
        if logp.dtype == dtype and rule == "band:tv:0.05":
            last = int(torch.where(bounds[side].isfinite() & (bounds[side] != 0))[0][-1])
            step = 2e-9 if dtype == torch.float64 else 4 * torch.finfo(dtype).eps
            bounds[side][last] *= 1 + step
        return TensorBounds(*bounds)

    monkeypatch.setattr(selftest_checks, "log_bounds", wrong)
    assert main([*QUICK, "--json", "--rules", "band:tv:0.05", "clip"]) == 1
    assert failed(capsys) == ["bounds of band:tv:0.05"]


def test_it_names_the_loss_whose_sign_is_flipped(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def flipped(*arguments: Any, **options: Any) -> Any:
        loss, statistics = policy_loss(*arguments, **options)
        return -loss, statistics

    monkeypatch.setattr(selftest_checks, "policy_loss", flipped)
    assert main([*QUICK, "--json", "--rules", "clip"]) == 1
    assert failed(capsys) == ["loss and gradient, clip:0.2,0.28", "loss and gradient, band:kl:0.05:10"]


def test_it_names_the_loss_that_clips_on_one_side_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def one_sided(*, rule: str, old_logp: Tensor, **options: Any) -> Any:
        lower, upper = log_bounds(old_logp, rule)
        return policy_loss(rule=TensorBounds(torch.full_like(lower, -math.inf), upper), old_logp=old_logp, **options)

    monkeypatch.setattr(selftest_checks, "policy_loss", one_sided)
    assert main([*QUICK, "--rules", "clip"]) == 1
    assert "FAILED: loss and gradient, clip:0.2,0.28" in capsys.readouterr().out


def test_an_operation_that_raises_has_failed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(logp: Tensor, rule: str) -> TensorBounds:
        raise RuntimeError("no kernel image is available\nand more")

    monkeypatch.setattr(selftest_checks, "log_bounds", broken)
    assert main([*QUICK, "--json", "--rules", "clip"]) == 1
    (check,) = [check for check in json.loads(capsys.readouterr().out)["checks"] if not check["passed"]]
    assert check == {
        "name": "bounds of clip:0.2,0.2",
        "passed": False,
        "detail": "raised RuntimeError: no kernel image is available",
    }


@pytest.mark.parametrize(("seconds", "passed"), [(0.3, True), (0.31, False)])
def test_speed_is_judged_against_pearson(seconds: float, passed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selftest, "alternating", lambda *_: {"kl": [seconds, 9.0], "pearson": [9.0, 0.1]})
    if passed:
        assert "3.00 times" in selftest.speed_job(CPU)
    else:
        with pytest.raises(selftest_checks.Failure, match=r"3\.10 times"):
            selftest.speed_job(CPU)


def test_measurements_take_turns_and_the_first_round_does_not_count() -> None:
    order: list[str] = []
    seconds = selftest.alternating({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, 2, CPU)
    assert order == ["a", "b"] * 3
    assert {name: len(taken) for name, taken in seconds.items()} == {"a": 2, "b": 2}


def test_every_divergence_and_kind_of_rule_is_checked() -> None:
    assert [rule for rule in selftest.RULES if rule.startswith("band:") and rule.endswith(":0.05")] == [
        f"band:{name}:0.05" for name in examples()
    ]
    assert selftest.RULES[-4:] == ("band:kl:0.05:10", "clip:0.2,0.28", "dcpo", "relaxed")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--device", "nowhere"], "--device is 'nowhere'"),
        (["--device", "cuda:99"], "--device is 'cuda:99'"),
        (["--device", "meta"], "--device is 'meta'"),
        (["--rules", "none"], "accepted: clip, dcpo, band and relaxed"),
        (["--rules", "bend:kl:0.05"], "did you mean 'band'?"),
        (["--workers", "0"], "--workers is 0; accepted: an integer of at least 1"),
        (["--seed", "-1"], "--seed is -1; accepted: an integer of at least 0"),
        (["--speeed"], "--speeed"),
    ],
)
def test_wrong_usage_is_status_2(options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(options) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.out == ""


# --- what it compares with ---------------------------------------------------------------------------------------------------


def test_total_variation_is_enclosed() -> None:
    """`r = 1 ± δ/p`, at most 1/p, at least 0: theory, section 4. At p = 1 nothing can be gained."""
    p = np.array([0.2, 0.04, 1.0])
    lower, upper = expected("band:tv:0.05", torch.log(torch.tensor(p)))
    logp = torch.log(torch.tensor(p)).numpy()
    exact_upper = np.log([1 + 0.05 * math.exp(-logp[0]), 1 + 0.05 * math.exp(-logp[1]), 1.0])
    np.testing.assert_allclose(upper.low, exact_upper, rtol=1e-14)
    np.testing.assert_allclose(upper.high, exact_upper, rtol=1e-14)
    np.testing.assert_allclose(lower.low, [math.log(0.75), -math.inf, math.log(0.95)], rtol=1e-14)
    assert (upper.low <= upper.high).all() and (lower.low <= lower.high).all()


def test_other_rules_are_written_out() -> None:
    token = torch.tensor([math.log(0.8), 0.5, math.nan], dtype=torch.float64)
    lower, upper = expected("clip:0.2,0.28", token)
    np.testing.assert_allclose([lower.low[:2], upper.low[:2]], [[math.log(0.8)] * 2, [math.log(1.28)] * 2], rtol=1e-15)
    assert np.isnan(lower.low[2]) and np.isnan(upper.high[2])
    lower, upper = expected("dcpo", token[:1])  # 4·0.16/0.8 = 0.8, 4·0.2/0.8 = 1
    np.testing.assert_allclose([lower.low[0], upper.low[0]], np.log([0.5 + 0.5 * 0.2**0.5, 0.5 + 0.5 * 2**0.5]), rtol=1e-14)
    lower, upper = expected("relaxed:tv:0.05:10", torch.log(torch.tensor([0.5, 1e-3], dtype=torch.float64)))
    np.testing.assert_allclose(lower.high, [math.log(0.8), -math.inf], rtol=1e-14)  # 1 − 0.05/0.5 = 0.9 lies inside
    np.testing.assert_allclose(upper.high, [math.log(1.28), math.log(10)], rtol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_neighbours_differ_by_one(dtype: torch.dtype) -> None:
    info = torch.finfo(dtype)
    least = info.smallest_normal * info.eps
    values = torch.tensor([-least, -0.0, 0.0, least, 1.0, 1 + info.eps, info.max, math.inf], dtype=torch.float64).to(dtype)
    places = rank(values)
    assert places[:4].tolist() == [-1, 0, 0, 1]
    assert places[5] - places[4] == places[7] - places[6] == 1


def test_the_deviation_counts_from_the_nearer_end() -> None:
    eps = 2.0**-23
    interval = Interval(
        np.array([1.0, 1.0, 1.0, -np.inf, np.nan, 1.0]), np.array([1 + eps, 1 + eps, 1 + eps, -np.inf, np.nan, 1.0])
    )
    values = torch.tensor([1 + 3 * eps, 1 - eps, 1.0, -math.inf, math.nan, math.nan], dtype=torch.float32)
    # below 1 the spacing is half of that above
    assert deviation(values, interval).tolist() == [2, 2, 0, 0, 0, math.inf]


def test_the_deviation_of_float64_is_relative() -> None:
    interval = Interval(np.array([-2.0, -np.inf, 1.0, 0.0]), np.array([-2.0, -np.inf, 1.0, 0.0]))
    values = torch.tensor([-2.0 - 2**-40, -1e300, math.nan, 1e-300], dtype=torch.float64)
    assert deviation(values, interval).tolist() == [2**-41, math.inf, math.inf, math.inf]
