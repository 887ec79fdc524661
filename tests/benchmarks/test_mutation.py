"""The faults that the suite is tried on: what is planted, that a sample is caught, and that what is right is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bandtheory.catalogue import catalogue
from benchmarks import mutation
from benchmarks.planted.catalogue import FAULTS, PLANTED, group
from benchmarks.planted.controls import CONTROLS
from benchmarks.planted.fault import KINDS, Fault, Trial, library

# Where two checks are named, either may be the first: hypothesis also draws literals of the modules that are loaded
CAUGHT_SOON = {
    "generator: concave kink at u = 1000": "generator",
    "generator: 1e-12 at u = 1": "generator",
    "generator: logarithm shifted": "generator",
    "tv: f(0) = 1": "derived limits",
    "derived tv: lower saturation without its second term": "derived saturation",
    "derived tv: no saturation": "derived closed form",
    "tv: sides swapped": "order",
    "tv: no cap at 1/p": "order, upper bound",
    "kl: δ doubled": "order, lower bound, upper bound",
    "tv: δ/(1 − p)": "order, upper bound",
    "kl: lower = 1 for p near 1": "lower bound",
    "kl: relative error 1e-9": "order, lower bound, upper bound",
}


def test_at_least_sixty_faults_of_every_kind_are_planted() -> None:
    assert len(FAULTS) >= 60
    assert {fault.kind for fault in FAULTS} == set(KINDS)


def test_every_family_of_the_catalogue_has_faults_of_its_own() -> None:
    missing = set(catalogue()) - {group(fault).partition(":")[0] for fault in FAULTS}
    assert not missing, f"plant faults of {missing} in benchmarks/planted (CONTRIBUTING.md, step 6)"


def test_names_are_unique_and_every_declaration_says_what_is_wrong_and_why() -> None:
    assert len(PLANTED) == len(FAULTS) + len(CONTROLS)
    assert all(fault.wrong and fault.why for fault in PLANTED.values())


def test_the_control_group_has_at_least_eight_members() -> None:
    assert len(CONTROLS) >= 8
    assert {control.kind for control in CONTROLS} == {"control"}


@pytest.mark.parametrize("name", CAUGHT_SOON)
def test_the_check_that_is_meant_for_a_fault_catches_it(name: str) -> None:
    row = mutation.judge(PLANTED[name], "quick", 0)
    assert row["error"] is None
    assert row["check"] in CAUGHT_SOON[name].split(", ")
    assert row["at"]


def test_a_counterexample_is_located() -> None:
    row = mutation.judge(PLANTED["kl: δ doubled"], "quick", 0)
    assert (row["p"], row["delta"]) == ("0.367879", "1.0")  # e^−1 and 1: what the inputs shrink to


def test_bounds_that_are_right_raise_no_alarm() -> None:
    control = next(control for control in CONTROLS if control.divergence == "hockey_stick:2")
    row = mutation.judge(control, "quick", 0)
    assert (row["caught"], row["error"]) == (False, None)
    assert mutation.summary([row], mutation.Settings(effort="quick"))["false_alarms"] == []


def test_a_flagged_control_is_a_false_alarm_and_no_caught_fault() -> None:
    row = {**dict.fromkeys(("check", "at"), "x"), "name": "right", "kind": "control", "caught": True, "error": None}
    record = mutation.summary([row], mutation.Settings())
    assert (record["planted"], record["caught"]) == (0, 0)
    assert record["false_alarms"] == [{"name": "right", "check": "x", "at": "x"}]


def test_a_fault_that_changes_nothing_survives_and_is_listed_with_why() -> None:
    harmless = Fault("tv: nothing", "wrong root", "tv", "nothing", "to see", lambda: Trial("tv", library("tv")))
    record = mutation.summary([mutation.judge(harmless, "quick", 0)], mutation.Settings(effort="quick"))
    assert (record["planted"], record["caught"], record["share"]) == (1, 0, 0.0)
    [survivor] = record["survivors"]
    assert survivor["name"] == "tv: nothing"
    assert survivor["reason"].startswith("no wrong bound among 4,000 random tokens")


def test_a_survivor_is_explained_by_the_share_of_inputs_that_are_wrong() -> None:
    doubled = PLANTED["kl: δ doubled"].plant().log_bounds
    share = mutation.share_wrong("kl", doubled, seed=0)
    assert share > 0.9
    reason = mutation.reason({"share_wrong": share, "error": None, "wrong": ""}, "quick")
    assert reason.startswith(f"bounds are wrong for {100 * share:.2g} % of random tokens")


def test_state_kept_between_calls_starts_afresh_in_each_trial() -> None:
    fault = PLANTED["kl: first radius kept"]
    assert fault.plant().log_bounds is not fault.plant().log_bounds


def test_the_record_names_inputs_machine_shares_and_every_subject(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "mutation.json"
    command = ["--effort", "quick", "--only", "f(1) is not 0", "--workers", "1", "--out", str(target)]
    assert mutation.main(command) == 0
    record = json.loads(target.read_text(encoding="utf-8"))
    assert record["inputs"] == {"effort": "quick", "seed": 0, "only": "f(1) is not 0"}
    assert set(record["run"]) == {"date", "command", "machine", "versions", "seconds"}
    count = sum(fault.kind == "f(1) is not 0" for fault in FAULTS)
    assert record["kinds"] == [{"kind": "f(1) is not 0", "planted": count, "caught": count, "share": 1.0}]
    assert (record["planted"], record["caught"], record["share"]) == (count, count, 1.0)
    assert (record["survivors"], record["controls"], record["false_alarms"]) == ([], 0, [])
    keys = {"name", "kind", "divergence", "wrong", "why", "caught", "check", "theorem", "error", "seconds", "at", "p", "delta"}
    assert [set(row) for row in record["rows"]] == [keys] * count
    printed = capsys.readouterr().out.splitlines()
    assert printed[-2:] == [f"{count} of {count} faults caught; 0 false alarms in 0 controls", "wrote mutation.json"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            ["--only", "no such fault"],
            "only is 'no such fault'; accepted: a part of the name, kind or divergence of some fault",
        ),
        (["--workers", "0"], "workers is 0; accepted: an integer of at least 1"),
        (["--seed", "-1"], "seed is -1; accepted: an integer of at least 0"),
    ],
)
def test_what_cannot_be_measured_is_refused(given: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert mutation.main(given) == 2
    assert capsys.readouterr().err == f"error: {message}\n"
