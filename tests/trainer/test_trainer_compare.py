"""A whole comparison: pairing, reproducibility, the null test, files and the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from trainer.__main__ import main
from trainer.compare import CLIP_CURVES, POLICY_CURVES, Comparison, compare
from trainer.config import CompareConfig, ConfigError
from trainer.files import write_together
from trainer.summary import table

ROOT = Path(__file__).resolve().parents[2]
TINY = CompareConfig(
    rules=("clip", "band:tv:0.05", "none"), learning_rates=(0.5, 2.0), seeds=3, contexts=4, actions=12, steps=4, inner_steps=3
)
TINY_ARGUMENTS = "compare --seeds 2 --contexts 3 --steps 2 --inner-steps 2 --learning-rates 1,3 --rules clip,clip:0.1,0.3 none"


@pytest.fixture(scope="module")
def tiny() -> Comparison:
    return compare(TINY)


def assert_same(left: Comparison, right: Comparison) -> None:
    for name in (*POLICY_CURVES, *CLIP_CURVES):
        np.testing.assert_array_equal(getattr(left, name), getattr(right, name), err_msg=name)


def part(whole: Comparison, rules: slice = slice(None), seeds: slice = slice(None)) -> Comparison:
    return replace(whole, **{name: getattr(whole, name)[:, rules, :, seeds] for name in (*POLICY_CURVES, *CLIP_CURVES)})


def test_the_same_seed_gives_the_same_numbers(tiny: Comparison) -> None:
    assert_same(compare(TINY), tiny)


def test_threads_change_no_number_and_are_given_back(tiny: Comparison) -> None:
    before = torch.get_num_threads()
    assert_same(compare(replace(TINY, threads=2)), tiny)
    assert torch.get_num_threads() == before


def test_another_seed_gives_others(tiny: Comparison) -> None:
    assert not np.array_equal(compare(replace(TINY, seed=10)).entropy[-1], tiny.entropy[-1])


def test_adding_seeds_leaves_the_others_as_they_were(tiny: Comparison) -> None:
    assert_same(compare(replace(TINY, seeds=2)), part(tiny, seeds=slice(2)))


def test_a_run_does_not_depend_on_the_rules_beside_it(tiny: Comparison) -> None:
    assert_same(compare(replace(TINY, rules=("clip", "band:tv:0.05"))), part(tiny, rules=slice(2)))


def test_every_rule_and_rate_starts_from_the_same_policy(tiny: Comparison) -> None:
    for name in POLICY_CURVES:
        start = getattr(tiny, name)[0]
        np.testing.assert_array_equal(start, np.broadcast_to(start[:1, :1], start.shape))


def test_shapes_and_clipping(tiny: Comparison) -> None:
    assert tiny.entropy.shape == (5, 3, 2, 3)
    assert tiny.clipped_up.shape == (4, 3, 2, 3)
    assert tiny.clipped_up[:, 2].max() == tiny.clipped_down[:, 2].max() == 0  # no rule, no clipping
    assert tiny.clipped_up[:, 0].max() > 0


def test_progress_counts_the_steps() -> None:
    seen: list[tuple[int, int]] = []
    compare(TINY, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_without_a_signal_a_fixed_clip_loses_entropy_and_a_total_variation_band_does_not() -> None:
    config = CompareConfig(reward="coin", rules=("clip", "band:tv:0.05"), seeds=3, contexts=48, steps=50)
    clip, band = compare(config).entropy[-1, :, 0, :]
    assert clip.max() < 1.2
    assert band.min() > 2.5


def test_the_default_comparison_is_the_documented_one() -> None:
    config = CompareConfig().resolved()
    assert (config.contexts, config.actions, config.samples, config.steps, config.inner_steps) == (64, 64, 16, 200, 16)
    assert config.learning_rates == (0.1, 1.0, 3.0)
    assert config.seeds == 10


def test_the_default_null_test_is_the_documented_one() -> None:
    config = CompareConfig(reward="coin").resolved()
    assert (config.contexts, config.steps, config.inner_steps, config.success_rate) == (128, 100, 4, 0.1)
    assert config.learning_rates == (1.0,)


def test_what_the_user_says_goes_before_the_defaults() -> None:
    config = CompareConfig(reward="coin", learning_rates=(2.0,), steps=7).resolved()
    assert (config.learning_rates, config.steps, config.contexts) == ((2.0,), 7, 128)


def test_rows_hold_paired_differences_to_the_baseline(tiny: Comparison) -> None:
    row = next(row for row in tiny.rows if row.rule == "none" and row.learning_rate == 2.0)
    assert row.entropy_difference is not None
    assert row.entropy_difference.mean == pytest.approx(np.mean(tiny.entropy[-1, 2, 1] - tiny.entropy[-1, 0, 1]))
    assert row.entropy == pytest.approx(tiny.entropy[-1, 2, 1].mean())
    assert [row.verdict for row in tiny.rows if row.rule == "clip"] == ["baseline", "baseline"]


def test_the_findings_name_each_regime_and_rule(tiny: Comparison) -> None:
    text = " ".join(tiny.sentences)
    assert "Learning rate 0.5: in the first" in text
    assert "Learning rate 2: in the first" in text
    assert "The claim that a band keeps more entropy than clip at equal accuracy holds" in text
    assert text.count("band:tv:0.05") >= 2


def with_final(whole: Comparison, entropy: float, accuracy: float) -> Comparison:
    """The same comparison, had the band ended with other values than the clip by these differences."""
    changed = {"entropy": whole.entropy.copy(), "accuracy": whole.accuracy.copy()}
    for name, difference in (("entropy", entropy), ("accuracy", accuracy)):
        changed[name][-1, 1] = changed[name][-1, 0] + difference
    return replace(whole, **changed)


@pytest.mark.parametrize(
    ("entropy", "accuracy", "words"),
    [
        (0.5, 0.0, "holds for every band"),
        (-0.5, 0.0, "holds for no band"),
        (0.5, -0.2, "holds for no band"),
    ],
)
def test_the_claim_follows_the_numbers(tiny: Comparison, entropy: float, accuracy: float, words: str) -> None:
    assert any(words in sentence for sentence in with_final(tiny, entropy, accuracy).sentences)


def test_save_writes_metrics_summary_and_figures(tiny: Comparison, tmp_path: Path) -> None:
    paths = tiny.save(tmp_path / "new" / "run")
    assert sorted(path.name for path in (tmp_path / "new" / "run").iterdir()) == sorted(path.name for path in paths)
    metrics = json.loads((tmp_path / "new" / "run" / "metrics.json").read_text())
    assert metrics["per_step"]["entropy"]["2"]["none"] == pytest.approx(tiny.entropy[:, 2, 1].mean(-1), rel=1e-6)
    assert metrics["final"]["accuracy"]["0.5"]["clip"]["per_seed"] == pytest.approx(tiny.accuracy[-1, 0, 0], rel=1e-6)
    summary = json.loads((tmp_path / "new" / "run" / "summary.json").read_text())
    assert summary["sentences"] == tiny.sentences
    assert [row["rule"] for row in summary["rows"]] == ["clip", "band:tv:0.05", "none"] * 2
    assert (tmp_path / "new" / "run" / "comparison.png").read_bytes().startswith(b"\x89PNG")
    assert b"</svg>" in (tmp_path / "new" / "run" / "comparison.svg").read_bytes()


def test_files_are_written_together_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "metrics.json").write_text("before")
    (tmp_path / "summary.json").mkdir()  # stands in the way of the second file
    with pytest.raises(IsADirectoryError, match=r"summary\.json is a directory"):
        write_together(tmp_path, {"metrics.json": b"after", "summary.json": b"after"})
    assert (tmp_path / "metrics.json").read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["metrics.json", "summary.json"]


def test_the_table_shows_every_rule_at_every_rate(tiny: Comparison) -> None:
    assert table(tiny).row_count == 6
    assert [len(table(tiny, width).columns) for width in (80, 200)] == [5, 11]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rules": ("clip", "clop")}, r"rules\[1\]: .*clop"),
        ({"rules": ("clip", "clip:0.2,0.2")}, r"rules\[1\]: 'clip:0.2,0.2' is the same rule as 'clip'"),
        ({"rules": ("none", "dcpo")}, "baseline: 'clip' is not among the rules compared: none dcpo"),
        ({"task": "maze"}, "task: unknown task 'maze'; accepted: bandit"),
        ({"reward": "dice"}, "reward: unknown reward 'dice'; accepted: correct, coin"),
        ({"learning_rates": (1.0, -3.0)}, r"learning_rates\[1\]: -3.0 is not a positive finite number"),
        ({"learning_rates": (float("nan"),)}, r"learning_rates\[0\]: nan"),
        ({"learning_rates": (1.0, 1.0)}, "holds one value twice"),
        ({"seeds": 1}, "seeds: 1 is too small; accepted: 2 or more"),
        ({"steps": 0}, "steps: 0 is too small"),
        ({"samples": 1}, "samples: 1 is too small"),
        ({"seed": -1}, "seed: -1 is too small"),
        ({"random_correct": 11}, "random_correct: 11 of 12 actions; accepted: at most actions - 2 = 10"),
        ({"success_rate": 1.0}, "success_rate: 1.0 is not between 0 and 1"),
        ({"accuracy_level": 0.0}, "accuracy_level: 0.0 is not between 0 and 1"),
        ({"decay": float("inf")}, "decay: inf"),
        ({"accuracy_margin": -0.1}, "accuracy_margin: -0.1"),
        ({"contexts": 10**9}, "contexts: 1000000000 makes 216,000,000,000 logits"),
    ],
)
def test_what_cannot_be_run_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        replace(TINY, **change).resolved()


def test_a_policy_that_diverges_stops_the_comparison_and_names_its_rate() -> None:
    with pytest.raises(ConfigError, match=r"learning_rates\[1\]: 1e\+39 leaves the logits of none without a finite value"):
        compare(replace(TINY, rules=("none",), baseline="none", learning_rates=(1.0, 1e39), inner_steps=16))


def test_the_command_writes_its_files_and_prints_the_findings(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "trainer", *TINY_ARGUMENTS.split(), "--out", str(tmp_path / "run")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "step 2 of 2" in done.stdout
    assert "Learning rate 3: in the first" in done.stdout
    assert "clip:0.1,0.3" in done.stdout
    assert {path.name for path in (tmp_path / "run").iterdir()} == {
        "metrics.json",
        "summary.json",
        "comparison.png",
        "comparison.svg",
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("compare --rules clip,clop", "rules[1]"),
        ("compare --learning-rates -1", "learning_rates[0]"),
        ("compare --seeds 1", "seeds: 1 is too small"),
    ],
)
def test_the_command_refuses_bad_values_and_writes_nothing(
    arguments: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments.split(), "--out", str(tmp_path / "run")]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", ["compare --task maze", "compare --reward dice", "compare --seeds many", "compete", ""])
def test_the_command_refuses_what_it_cannot_read(arguments: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments.split())
    assert stopped.value.code == 2
    assert capsys.readouterr().err != ""


def test_an_output_directory_that_is_a_file_is_refused_before_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run").write_text("mine")
    assert main(["compare", "--out", str(tmp_path / "run" / "deeper")]) == 2
    assert "is a file" in capsys.readouterr().err
    assert (tmp_path / "run").read_text() == "mine"
