"""The verdict follows from the numbers: other numbers, another verdict."""

from __future__ import annotations

from typing import Any

from benchmarks.verdict import bias_claim, claims, entropy_claim, verdict, verification_claim, verified


def checked(name: str, *passed: bool | None) -> dict[str, Any]:
    checks = [{"name": f"check {i}", "passed": value} for i, value in enumerate(passed)]
    return {"divergence": name, "passed": False not in passed, "checks": checks}


def row(rule: str, rate: float, verdict: str, entropy: float, difference: float | None) -> dict[str, Any]:
    interval = None if difference is None else {"mean": difference, "low": difference, "high": difference}
    return {
        "rule": rule,
        "learning_rate": rate,
        "verdict": verdict,
        "entropy": entropy,
        "entropy_difference": interval,
        "band": rule.startswith("band:"),
    }


def comparison(rates: list[float], *rows: dict[str, Any]) -> dict[str, Any]:
    return {"config": {"baseline": "clip", "learning_rates": rates}, "initial_entropy": 3.0, "rows": list(rows)}


BASELINE = row("clip", 1.0, "baseline", 0.25, None)
GOOD = row("band:kl:0.05", 1.0, "holds", 1.25, 1.0)
BAD = row("band:tv:0.05", 1.0, "less entropy", 0.2, -0.05)


def test_verified_counts_the_checks_that_passed() -> None:
    claim = verification_claim([checked("kl", True, None), checked("tv", True, True)])
    assert (claim.status, claim.findings) == ("holds", ("verified kl, tv (3 checks passed, 1 not applicable)",))


def test_one_failed_check_fails_the_claim_and_comes_first() -> None:
    claim = verification_claim([checked("kl", True), checked("tv", True, False)])
    assert (claim.status, claim.findings) == ("fails", ("FAILED tv (check 1)", "verified kl (1 checks passed)"))


def test_nothing_verified_is_no_success() -> None:
    assert not verified([])
    assert verification_claim([]).status == "fails"


def test_the_entropy_claim_holds_if_every_band_keeps_more_at_every_learning_rate() -> None:
    claim = entropy_claim(comparison([1.0], BASELINE, GOOD))
    assert claim.status == "holds"
    assert claim.findings == ("bands against clip, learning rate 1: more entropy at equal accuracy (+1.000 nats)",)


def test_bands_that_differ_are_told_apart() -> None:
    claim = entropy_claim(comparison([1.0], BASELINE, GOOD, BAD))
    assert claim.status == "mixed"
    assert claim.findings[0].endswith(
        "more entropy at equal accuracy for band:kl:0.05 (+1.000 nats), less entropy for band:tv:0.05 (-0.050 nats)"
    )


def test_the_entropy_claim_fails_where_no_band_keeps_more() -> None:
    assert entropy_claim(comparison([1.0], BASELINE, BAD)).status == "fails"


def test_other_rules_than_bands_do_not_count() -> None:
    other = row("dcpo", 1.0, "holds", 2.0, 1.75)
    assert entropy_claim(comparison([1.0], BASELINE, BAD, other)).status == "fails"
    claim = entropy_claim(comparison([1.0], BASELINE, other))
    assert (claim.status, claim.findings) == ("undecided", ("bands against clip, learning rate 1: no band was compared",))


def test_wide_intervals_leave_the_claim_undecided() -> None:
    assert entropy_claim(comparison([1.0], BASELINE, row("band:kl:0.05", 1.0, "undecided", 0.3, 0.05))).status == "undecided"


def test_the_bias_is_told_in_nats_left() -> None:
    claim = bias_claim(comparison([1.0], BASELINE, GOOD, row("band:tv:0.05", 1.0, "holds", 2.875, 2.625)))
    assert claim.status == "holds"
    assert claim.findings == ("coin for a reward, learning rate 1: clip 0.25, bands 1.25 to 2.88 of 3.00 nats left",)


def test_the_verdict_is_one_line_of_all_findings() -> None:
    found = claims(
        {
            "verification": [checked("kl", True)],
            "correct": comparison([1.0], BASELINE, GOOD),
            "coin": comparison([1.0], BASELINE, BAD),
        }
    )
    assert verdict(found) == (
        "Verified kl (1 checks passed). Bands against clip, learning rate 1: more entropy at equal accuracy (+1.000 nats). "
        "Coin for a reward, learning rate 1: clip 0.25, bands 0.20 of 3.00 nats left."
    )
