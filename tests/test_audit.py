"""The audit: what is counted, in which bin, with which mass; that streaming changes nothing; that memory stays flat."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from bandtheory.audit import BIN_EDGES, AuditError, RuleAudit, audit, example_path
from bandtheory.rules import Band, NoClip, RatioClip, RuleError

P = np.array([[0.5, 0.005, 0.9], [0.15, 0.3, 0.7]])
R = np.array([[1.5, 1.1, 0.5], [0.5, 0.9, 0.1]])


def tiny(**changes: object) -> dict[str, object]:
    """Two answers of three tokens with advantages 2 and −1; the last token is masked."""
    arrays: dict[str, object] = {
        "old_logp": np.log(P),
        "new_logp": np.log(P) + np.log(R),
        "mask": np.array([[1, 1, 1], [1, 1, 0]], bool),
        "advantage": np.array([2.0, -1.0]),
    }
    return {name: value for name, value in (arrays | changes).items() if value is not None}


def one(source: object, rule: object = RatioClip(0.2, 0.2), **options: int) -> RuleAudit:
    return audit(source, [rule], **options).rules[0]  # type: ignore[arg-type, list-item]


def random_arrays(rows: int, columns: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    old = -rng.exponential(2.0, (rows, columns)).astype(np.float32)
    return {
        "old_logp": old,
        "new_logp": np.minimum(old + rng.normal(0, 0.3, old.shape), 0).astype(np.float32),
        "mask": rng.random(old.shape) < 0.7,
        "advantage": rng.normal(0, 1, rows).astype(np.float32),
    }


def test_clipped_tokens_of_a_batch_counted_by_hand() -> None:
    """Up: r = 1.5 at p = 0.5, A = 2. Down: r = 0.5 at p = 0.15, A = −1. The r = 0.5 with A = 2 is not clipped."""
    row = one(tiny())
    assert row.clipped_up == (0, 0, 0, 0, 1, 0, 0)
    assert row.clipped_down == (0, 0, 1, 0, 0, 0, 0)
    assert (row.up_fraction, row.down_fraction, row.clip_fraction) == (1 / 5, 1 / 5, 2 / 5)
    assert row.clip_fraction_by_bin == (0, 0, 1, 0, 1, 0, 0)


def test_mass_is_the_advantage_times_the_ratio() -> None:
    """|A|·r: 2·1.5, 2·1.1, 2·0.5, 0.5, 0.9 in the bins of p = 0.5, 0.005, 0.9, 0.15, 0.3; 3 and 0.5 of 7.6 are removed."""
    row = one(tiny())
    assert row.bins.tokens == (1, 0, 1, 1, 1, 0, 1)
    assert row.bins.mass == pytest.approx((2.2, 0, 0.5, 0.9, 3.0, 0, 1.0), rel=1e-14)
    assert row.removed_up == pytest.approx((0, 0, 0, 0, 3.0, 0, 0), rel=1e-14)
    assert row.removed_down == pytest.approx((0, 0, 0.5, 0, 0, 0, 0), rel=1e-14)
    assert row.removed_share == pytest.approx(3.5 / 7.6, rel=1e-14)
    assert row.removed_share_by_bin == (0, 0, 1, 0, 1, 0, 0)


def test_bounds_used_are_the_extremes_over_valid_tokens() -> None:
    """tv at δ = 0.1: upper = min(1 + δ/p, 1/p), lower = max(1 − δ/p, 0); p = 0.7 is masked."""
    row = one(tiny(), Band("tv", 0.1))
    assert row.widest_upper == pytest.approx(1 + 0.1 / 0.005, rel=1e-12)
    assert row.tightest_upper == pytest.approx(1 + 0.1 / 0.9, rel=1e-12)
    assert row.widest_lower == 0
    assert row.tightest_lower == pytest.approx(1 - 0.1 / 0.9, rel=1e-12)


def test_a_ratio_on_the_bound_is_not_clipped() -> None:
    """With log-bounds l and u, −u − (−2u) = u and 2l − l = l hold exactly in floating point; one step further is clipped."""
    low, high = math.log1p(-0.2), math.log1p(0.2)
    on = {"old_logp": np.array([-2 * high, low]), "new_logp": np.array([-high, 2 * low]), "advantage": np.array([1.0, -1.0])}
    assert one(on).clip_fraction == 0
    beyond = on | {"new_logp": np.array([np.nextafter(-high, 0), np.nextafter(2 * low, -1)])}
    assert one(beyond).clip_fraction == 1


def test_a_zero_advantage_is_never_clipped_and_has_no_mass() -> None:
    row = one(tiny(advantage=np.zeros(2)))
    assert (row.clip_fraction, row.removed_share, sum(row.bins.mass)) == (0, 0, 0)


@pytest.mark.parametrize("index", range(7))
def test_bins_are_closed_below_and_open_above(index: int) -> None:
    low, high = BIN_EDGES[index : index + 2]
    old = np.log([max(low * (1 + 1e-12), 1e-300), high * (1 - 1e-12)])
    expected = tuple(2 if i == index else 0 for i in range(7))
    assert one({"old_logp": old, "new_logp": old, "advantage": np.ones(2)}).bins.tokens == expected


def test_probability_one_is_in_the_last_bin_and_underflow_in_the_first() -> None:
    old = np.array([0.0, -1e5])
    assert one({"old_logp": old, "new_logp": old, "advantage": np.ones(2)}).bins.tokens == (1, 0, 0, 0, 0, 0, 1)


def test_a_token_beyond_the_clamp_of_the_loss_has_no_mass() -> None:
    """`policy_loss` clamps log r to ±20: at log r = 21 its gradient is 0; at 19 the mass is e¹⁹."""
    source = {"old_logp": np.array([-30.0, -30.0]), "new_logp": np.array([-9.0, -11.0]), "advantage": np.ones(2)}
    report = audit(source, [NoClip()])
    assert report.beyond_clamp == 1
    assert sum(report.bins.mass) == pytest.approx(math.exp(19), rel=1e-14)


def test_a_new_log_probability_of_minus_infinity_is_ratio_zero() -> None:
    source = {"old_logp": np.array([-1.0]), "new_logp": np.array([-np.inf]), "advantage": np.array([-1.0])}
    assert sum(one(source).clipped_down) == 1
    assert sum(one(source, NoClip()).clipped_down) == 0


def test_without_a_mask_every_token_is_valid() -> None:
    assert audit(tiny(mask=None), [NoClip()]).tokens == 6


@pytest.mark.parametrize("garbage", [np.nan, np.inf, 1e30])
def test_masked_positions_are_never_looked_at(garbage: float) -> None:
    spoiled = tiny()
    for name in ("old_logp", "new_logp"):
        spoiled[name] = np.where(spoiled["mask"], spoiled[name], garbage)
    assert audit(spoiled, ["clip"]) == audit(tiny(), ["clip"])


def test_the_advantage_of_a_sequence_without_valid_tokens_is_never_looked_at() -> None:
    mask = np.array([[1, 1, 1], [0, 0, 0]], bool)
    assert audit(tiny(mask=mask, advantage=np.array([2.0, np.nan])), ["clip"]).tokens == 3


@pytest.mark.parametrize("shape", [(2, 1), (2, 3)])
def test_advantage_per_sequence_equals_the_same_per_token(shape: tuple[int, int]) -> None:
    advantage = np.broadcast_to(np.array([[2.0], [-1.0]]), shape)
    assert audit(tiny(advantage=advantage), ["clip"]) == audit(tiny(), ["clip"])


def test_flat_arrays_equal_the_same_in_two_dimensions() -> None:
    flat = {name: np.ravel(value) for name, value in tiny(advantage=np.array([[2.0] * 3, [-1.0] * 3])).items()}  # type: ignore[call-overload]
    assert audit(flat, ["clip"]).rules == audit(tiny(), ["clip"]).rules


@pytest.mark.parametrize("chunk", [1, 2, 7, 13, 64, 10_000])
def test_chunk_boundaries_change_no_count_and_no_sum(chunk: int) -> None:
    arrays = random_arrays(11, 13)
    whole, parts = audit(arrays, ["clip", "band:tv:0.05"]), audit(arrays, ["clip", "band:tv:0.05"], chunk_tokens=chunk)
    for a, b in zip(whole.rules, parts.rules, strict=True):
        assert (a.clipped_up, a.clipped_down, a.bins.tokens) == (b.clipped_up, b.clipped_down, b.bins.tokens)
        assert a.removed_up == pytest.approx(b.removed_up, rel=1e-12)
        assert a.removed_down == pytest.approx(b.removed_down, rel=1e-12)
        assert (a.widest_upper, a.tightest_upper, a.widest_lower) == (b.widest_upper, b.tightest_upper, b.widest_lower)


def test_the_bundled_example_is_one_real_step() -> None:
    """4,961 valid tokens, as the data's README says; the counts of clip 0.2 are those of a direct numpy evaluation."""
    with np.load(example_path(), allow_pickle=False) as arrays:
        mask, ratio = arrays["mask"], np.exp(arrays["new_logp"].astype(float) - arrays["old_logp"])
        advantage = arrays["advantage"][:, None]
        up, down = mask & (advantage > 0) & (ratio > 1.2), mask & (advantage < 0) & (ratio < 0.8)
        share = float((abs(advantage) * ratio)[up | down].sum() / (abs(advantage) * ratio)[mask].sum())
    report = audit(example_path(), ["clip"])
    assert report.tokens == 4961
    assert (sum(report.rules[0].clipped_up), sum(report.rules[0].clipped_down)) == (up.sum(), down.sum())
    assert report.rules[0].removed_share == pytest.approx(share, rel=1e-12)


def test_the_report_is_plain_json_without_nan_or_infinity() -> None:
    report = audit(tiny(), [NoClip(), RatioClip(0.2, 0.2)])
    loaded = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert loaded["tokens"] == 5
    assert [row["rule"] for row in loaded["rules"]] == ["none", "clip:0.2,0.2"]
    assert (loaded["rules"][0]["widest_upper"], loaded["rules"][0]["widest_lower"]) == ("inf", 0.0)
    assert loaded["rules"][1]["clipped_up"] == [0, 0, 0, 0, 1, 0, 0]


def test_the_report_prints_a_row_a_rule_and_a_row_a_bin() -> None:
    text = str(audit(tiny(), ["none", "clip:0.2,0.2"]))
    assert "5 valid tokens of 2 × 3" in text
    assert "1 (20.00 %)" in text
    assert "46.05 %" in text  # 3.5 / 7.6
    assert all(label in text for label in ("[0, 0.01)", "[0.1, 0.2)", "[0.8, 1]"))


def test_progress_ends_at_the_number_of_positions() -> None:
    seen: list[tuple[int, int]] = []
    audit(tiny(), ["none"], chunk_tokens=4, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(4, 6), (6, 6)]


@pytest.mark.parametrize("chunk", [0, -1, 2.5, True])
def test_chunk_tokens_must_be_a_positive_integer(chunk: object) -> None:
    with pytest.raises(AuditError, match="chunk_tokens"):
        audit(tiny(), ["none"], chunk_tokens=chunk)  # type: ignore[arg-type]


def test_no_rules_and_an_unknown_rule_are_refused() -> None:
    with pytest.raises(AuditError, match="rules is empty"):
        audit(tiny(), [])
    with pytest.raises(RuleError, match="clap"):
        audit(tiny(), ["clap"])


_MEASURE = """
import resource
import sys
from pathlib import Path
import numpy as np
from bandtheory.audit import audit

def peak_bytes():
    status = Path("/proc/self/status")
    if status.exists():  # on Linux ru_maxrss starts at the size of the process that forked this one
        return 1024 * int(status.read_text().split("VmHWM:")[1].split()[0])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

audit(dict(old_logp=np.zeros(1), new_logp=np.zeros(1), advantage=np.ones(1)), ["clip", "dcpo"])  # imports
before = peak_bytes()
report = audit(sys.argv[1], ["clip", "dcpo"], chunk_tokens=2**16)
print(report.tokens, peak_bytes() - before)
"""


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED], ids=["stored", "deflated"])
def test_ten_million_tokens_need_a_fraction_of_their_size(tmp_path: Path, compression: int) -> None:
    """The arrays hold 80 MB as stored and 160 MB as float64; the peak memory of a process may grow by 40 MiB."""
    rows, columns, blocks = 1000, 1000, 10
    four = -np.random.default_rng(0).exponential(2.0, (4, columns)).astype(np.float32)
    block = np.tile(four, (rows // 4, 1))  # repeats within 32 kB, which deflate is quick with
    with zipfile.ZipFile(tmp_path / "big.npz", "w", compression, compresslevel=1) as archive:
        for name in ("old_logp", "new_logp", "advantage"):
            shape = (rows * blocks,) if name == "advantage" else (rows * blocks, columns)
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array_header_1_0(member, {"descr": "<f4", "fortran_order": False, "shape": shape})
                for _ in range(blocks):
                    member.write(np.ones(rows, np.float32).tobytes() if name == "advantage" else block.tobytes())
    result = subprocess.run(
        [sys.executable, "-c", _MEASURE, str(tmp_path / "big.npz")], capture_output=True, text=True, timeout=60, check=True
    )
    tokens, growth = map(int, result.stdout.split())
    assert tokens == 10_000_000
    assert growth < 40 * 2**20
