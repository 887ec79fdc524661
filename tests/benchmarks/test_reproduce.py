"""The reproduction as a user meets it: what it prints, what it writes, and how it ends."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import partial
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bandtheory.catalogue import examples
from benchmarks import parallel, reproduce
from benchmarks.experiments import Outcome, compare_rules

if TYPE_CHECKING:
    from tests.benchmarks.conftest import Run


class _Elements(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.sources: list[str] = []
        self.names: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.sources += [value or "" for name, value in attrs if name in ("src", "href", "data", "action")]
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_verified_run_ends_with_status_0(run: Run) -> None:
    assert run.status == 0


def test_it_ends_by_printing_where_the_report_is_and_the_verdict(run: Run) -> None:
    where, line = run.lines[-2:]
    assert re.fullmatch(r"report: \S+/new/folder/report\.html \(data: \S+/new/folder/report\.json\)", where)
    assert line == f"verdict: {run.report['verdict']}"


def test_elsewhere_than_on_a_terminal_each_experiment_is_one_plain_line(run: Run) -> None:
    assert len(run.lines) == 1 + 4 + 2
    assert [line[:5] for line in run.lines[1:5]] == ["[1/4]", "[2/4]", "[3/4]", "[4/4]"]
    assert not any("\x1b" in line for line in run.lines)


def test_the_report_needs_no_other_file(run: Run) -> None:
    page = _Elements(run.html)
    assert page.open == []
    assert page.names.isdisjoint({"script", "link", "iframe", "object", "a"})
    assert len(page.sources) == 4
    assert all(source.startswith("data:image/png;base64,iVBOR") for source in page.sources)
    assert "url(" not in run.html and "@import" not in run.html


def test_the_report_names_every_check_with_its_inputs(run: Run) -> None:
    (record,) = run.report["verification"]
    assert len(record["checks"]) > 10
    for check in record["checks"]:
        assert f"<td>{escape(check['name'])}</td>" in run.html
        assert check["inputs"] or check["note"]


def test_the_report_says_on_what_and_how_it_was_made(run: Run) -> None:
    about = run.report["run"]
    assert set(about) == {"date", "command", "machine", "versions", "seconds"}
    assert about["command"].startswith("python -m benchmarks.reproduce --out ")
    assert {"python", "bandtheory", "numpy", "torch", "cvxpy"} <= set(about["versions"])
    assert f"torch {about['versions']['torch']}" in run.html
    assert f"{about['machine']['cores']} cores" in run.html


def test_the_audit_counts_every_valid_token_of_the_bundled_file(run: Run) -> None:
    assert (run.report["audit"]["source"], run.report["audit"]["tokens"]) == ("chain_sum_tokens.npz", 4961)
    assert sum(run.report["audit"]["bins"]["tokens"]) == 4961


def test_the_comparisons_have_intervals_for_every_rule_but_the_baseline(run: Run) -> None:
    for name, rates in (("correct", [0.1, 1.0, 3.0]), ("coin", [1.0])):
        rows = run.report[name]["rows"]
        assert [row["learning_rate"] for row in rows] == [rate for rate in rates for _ in range(7)]
        assert [row["rule"] for row in rows if row["entropy_difference"] is None] == ["clip"] * len(rates)
        assert [row["rule"] for row in rows if row["band"]] == ["band:kl:0.05", "band:tv:0.05", "band:pearson_chi2:0.05"] * len(
            rates
        )


def _outcomes(run: Run, **verification: Any) -> dict[str, Outcome]:
    """The outcomes of the shared run, the verification changed."""
    (record,) = run.report["verification"]
    image = b"\x89PNG"
    return {
        "compare rules, correct actions rewarded": Outcome(run.report["correct"], {"correct": image}),
        "verify tv": Outcome(record | verification),
        "compare rules, coin for a reward": Outcome(run.report["coin"], {"coin": image}),
        "audit bundled tokens": Outcome(run.report["audit"], {"audit": image, "rules": image}),
    }


def test_a_failed_verification_ends_with_status_1_and_is_in_the_report(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = run.report["verification"][0]["checks"][0] | {"passed": False, "counterexample": "f(2) < f(1) & f(3)"}
    outcomes = _outcomes(run, passed=False, checks=[failed], derived=None)
    monkeypatch.setattr(parallel, "run", lambda jobs, workers, display: outcomes)
    assert reproduce.main(["--out", str(tmp_path)]) == 1
    assert f"verdict: FAILED tv ({failed['name']})." in capsys.readouterr().out
    assert json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["passed"] is False
    assert "f(2) &lt; f(1) &amp; f(3)" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_the_longest_experiment_is_started_first() -> None:
    names = list(reproduce.plan(reproduce.Settings()))
    assert names[0] == "compare rules, correct actions rewarded"
    assert names[1:-2] == [f"verify {name}" for name in examples()]


def test_an_experiment_that_breaks_off_is_named(tmp_path: Path) -> None:
    class Silent:
        def update(self, name: str, done: int, total: int) -> None: ...

        def finish(self, name: str, seconds: float) -> None: ...

    with pytest.raises(parallel.JobError, match=r"broken: ConfigError: seeds: 1 is too small"):
        parallel.run({"broken": partial(compare_rules, "coin", {"seeds": 1})}, 1, Silent())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seeds", "1"], "error: seeds is 1; accepted: an integer of at least 2"),
        (["--seed", "-1"], "error: seed is -1; accepted: an integer of at least 0"),
        (["--steps", "0"], "error: steps is 0; accepted: an integer of at least 1"),
        (["--workers", "0"], "error: workers is 0; accepted: an integer of at least 1"),
        (["--divergences", "kll"], "kll"),
        (["--out", __file__], "accepted: a directory"),
    ],
)
def test_wrong_arguments_end_with_status_2_and_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = arguments if "--out" in arguments else [*arguments, "--out", str(tmp_path)]
    assert reproduce.main(arguments) == 2
    printed = capsys.readouterr()
    assert message in printed.err and printed.err.count("\n") == 1 and printed.out == ""
    assert list(tmp_path.iterdir()) == []


def test_settings_name_the_whole_catalogue_unless_told_otherwise() -> None:
    some = replace(reproduce.Settings(), divergences=("kl", "-log(u)"))
    assert [name for name in reproduce.plan(some) if name.startswith("verify")] == ["verify kl", "verify -log(u)"]
