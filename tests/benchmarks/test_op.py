"""The benchmarks of the tensor operation: right baselines, sums that add up, and runs to the end; how fast, is not tested."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bandtheory as bt
from bandtheory.catalogue import examples
from bandtheory.torch import TensorBounds, log_bounds
from bandtheory.torch.selftest import textbook_pearson
from benchmarks import gpu, op
from benchmarks.op_timing import (
    BANDS,
    KL,
    RULES,
    Target,
    allocated_beyond_outputs,
    bisection_kl,
    bundled_tokens,
    path,
    surrogate_step,
    worst_of,
)

CPU = torch.device("cpu")
# Neither baseline is accurate in float32 near p = 0 and p = 1, which is part of what the library is for.
ORDINARY = torch.log(torch.linspace(0.06, 0.94, 301, dtype=torch.float64)).float()


# --- baselines ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "baseline"), [("kl", bisection_kl), ("pearson_chi2", textbook_pearson)])
def test_a_baseline_computes_the_same_bounds(name: str, baseline: Any) -> None:
    lower, upper = baseline(ORDINARY, 0.05)[:2]
    exact = bt.log_bounds(logp=ORDINARY.double().numpy(), divergence=name, delta=0.05)
    np.testing.assert_allclose(lower.exp().numpy(), np.exp(exact.lower), rtol=0, atol=1e-5)
    np.testing.assert_allclose(upper.exp().numpy(), np.exp(exact.upper), rtol=0, atol=1e-5)


def test_bisection_takes_all_its_steps_unless_a_tolerance_ends_it() -> None:
    assert bisection_kl(ORDINARY, 0.05)[2] == 100
    # intervals of width at most 1 on either side: 2⁻²⁰ is the first power below 1e-6
    assert bisection_kl(ORDINARY, 0.05, tolerance=1e-6)[2] == 2 * 20


def test_pearson_saturates_at_both_ends_of_the_simplex() -> None:
    lower, upper = textbook_pearson(torch.tensor([-7.0, -1e-3]), 0.05)
    assert lower[0] == -math.inf
    assert upper[1].item() == pytest.approx(1e-3, rel=1e-3)


def test_tokens_are_drawn_from_the_bundled_ones_by_the_seed() -> None:
    drawn = bundled_tokens(5000, 3)
    assert drawn.dtype == torch.float32
    assert torch.equal(drawn, bundled_tokens(5000, 3))
    assert not torch.equal(drawn, bundled_tokens(5000, 4))
    with np.load(Path(bt.__file__).parent / "data" / "chain_sum_tokens.npz") as arrays:
        valid = arrays["old_logp"][arrays["mask"]]
    assert np.isin(drawn.numpy(), valid).all()


def test_every_divergence_and_kind_of_rule_is_measured() -> None:
    assert {rule.split(":")[0] for rule in RULES} == {"band", "clip", "dcpo", "relaxed"}
    assert [bt.divergence(band.removeprefix("band:").removesuffix(":0.05")).name for band in BANDS] == list(examples())


def test_the_surrogate_step_leaves_a_gradient_and_no_history() -> None:
    step = surrogate_step(bundled_tokens(600, 0), 0)("clip:0.2,0.2")
    first, second = step(), step()
    assert isinstance(first, torch.Tensor)
    assert first.shape == (2, 256)
    assert first.abs().sum() > 0
    assert torch.equal(first, second)  # not accumulated


# --- counting and choosing ---------------------------------------------------------------------------------------------------


def test_memory_beyond_the_outputs_counts_what_torch_and_numpy_hold_at_once() -> None:
    size = 2**18

    def in_torch() -> list[torch.Tensor]:
        first = torch.ones(size)
        second = first + 1
        del first
        return [second * 2]  # second and the output, then; first and second, before: one temporary at any moment

    def in_numpy() -> list[torch.Tensor]:
        held = np.ones(3 * size, dtype=np.float32)
        return [torch.ones(size) * float(held[0])]

    assert allocated_beyond_outputs(in_torch, CPU) == pytest.approx(4 * size, rel=0.02)
    assert allocated_beyond_outputs(in_numpy, CPU) >= 3 * 4 * size
    assert allocated_beyond_outputs(lambda: [torch.ones(size)], CPU) < 0.02 * 4 * size


@pytest.mark.parametrize(
    ("relation", "measured", "met"),
    [
        ("at least", 50.0, True),
        ("at least", 49.9, False),
        ("at least", math.nan, False),
        ("at most", 50.0, True),
        ("at most", 50.1, False),
        ("at most", math.nan, False),
    ],
)
def test_a_target_is_met_on_its_own_side(relation: str, measured: float, met: bool) -> None:
    target = Target("speed", relation, 50.0, measured)
    assert target.met is met
    assert target.row()["met"] is met
    assert str(target).startswith("met: speed" if met else "NOT MET: speed")


def test_the_worst_rule_is_the_one_furthest_from_the_target() -> None:
    rows = [{"rule": "a", "x": 1.0}, {"rule": "b", "x": 3.0}]
    assert (worst_of(rows, "x", "x", "at most", 2.0).measured, worst_of(rows, "x", "x", "at least", 2.0).measured) == (3.0, 1.0)
    assert worst_of(rows, "x", "x", "at most", 2.0).name == "x, worst rule, b"


def test_the_targets_follow_from_the_rows() -> None:
    def row(rule: str, pearson: float, faster: float) -> dict[str, Any]:
        return {"rule": rule, "times_pearson": pearson, "times_faster_than_bisection": faster}

    found = op.targets(
        {"steps": 100, "times_faster": 60.0},
        [row(KL, 2.0, 61.0), row("band:tv:0.05", 4.0, 49.0)],
        [{"rule": KL, "times_clip": 1.4}, {"rule": "band:tv:0.05", "times_clip": 1.5}],
        [{"rule": KL, "times_input": 1.25}],
    )
    assert [(target.target, target.measured, target.met) for target in found] == [
        (50.0, 60.0, True),
        (100.0, 60.0, False),
        (3.0, 2.0, True),
        (50.0, 49.0, False),
        (3.0, 4.0, False),
        (1.5, 1.5, True),
        (1.0, 1.25, False),
    ]


def test_the_path_is_told_from_the_functions_that_ran() -> None:
    assert path(KL, CPU, torch.float64) == "float64 library"
    assert path("dcpo", CPU, torch.bfloat16).startswith("list of all 16-bit floats")
    assert path("dcpo", CPU).startswith("float32 table")
    assert path("clip:0.2,0.2", CPU) == "a constant"


# --- runs --------------------------------------------------------------------------------------------------------------------


def test_the_cpu_benchmark_writes_ratios_targets_and_a_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "op.json"
    options = [
        "--tokens",
        "2000",
        "--repeats",
        "1",
        "--threads",
        "1",
        "--rules",
        "clip",
        "--largest",
        "10",
        "--out",
        str(target),
    ]
    assert op.main(options) == 0
    record = json.loads(target.read_text(encoding="utf-8"))
    assert [row["rule"] for row in record["rules"]] == [KL, "clip:0.2,0.2"]
    for row in record["rules"]:
        assert row["times_pearson"] == pytest.approx(row["seconds"] / row["pearson_seconds"])
        assert row["times_faster_than_bisection"] == pytest.approx(record["bisection"]["seconds"] / row["seconds"])
    for row in record["surrogate"]:
        assert row["times_clip"] == pytest.approx(row["seconds"] / row["clip_seconds"])
    assert [row["dtype"] for row in record["dtypes"]] == ["bfloat16", "float16", "float64"]
    assert {row["tokens"] for row in record["scaling"]} == {1024}
    assert all(set(row) == {"name", "relation", "target", "measured", "met"} for row in record["targets"])
    assert set(record["run"]) == {"date", "command", "machine", "versions"}
    assert (tmp_path / "op_scaling.png").read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr().out.splitlines()
    assert sum(line.startswith(("met: ", "NOT MET: ")) for line in printed) == len(record["targets"])
    assert printed[-1] == "wrote op.json and op_scaling.png"


def test_the_gpu_benchmark_runs_to_its_end_without_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "gpu.json"
    assert gpu.main(["--dry-run", "--out", str(target)]) == 0
    record = json.loads(target.read_text(encoding="utf-8"))
    assert record["works"] is True
    assert record["features"] == {"cuda_graph": "not run: no CUDA device", "compile": "works"}
    assert {(row["dtype"], row["inputs"]) for row in record["accuracy"]} == {
        ("float32", "random"),
        ("float32", "random and hostile"),
        ("bfloat16", "all values"),
        ("float16", "all values"),
    }
    assert len(record["targets"]) == 7
    assert capsys.readouterr().out.splitlines()[0].endswith("DRY RUN")


def test_the_gpu_benchmark_fails_where_bounds_are_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(logp: torch.Tensor, rule: str) -> TensorBounds:
        lower, upper = log_bounds(logp, rule)
        return TensorBounds(lower, upper * (1 + 2**-6))

    monkeypatch.setattr(gpu, "log_bounds", wrong)
    rows = gpu._accuracy(KL, gpu.Settings(random_tokens=100, dry_run=True), CPU)
    assert all(row["ulp"] > row["accepted"] for row in rows)


def test_the_gpu_benchmark_says_in_one_line_that_there_is_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu.main([]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert "no such CUDA device" in printed.err


@pytest.mark.parametrize(
    ("main", "options", "message"),
    [
        (op.main, ["--tokens", "0"], "tokens is 0; accepted: an integer of at least 1"),
        (op.main, ["--largest", "9"], "largest is 9; accepted: an integer of at least 10"),
        (op.main, ["--rules", "bend:kl:0.05"], "did you mean 'band'?"),
        (gpu.main, ["--repeats", "0"], "repeats is 0; accepted: an integer of at least 1"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    main: Any, options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*options, "--out", str(tmp_path / "x.json")]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
