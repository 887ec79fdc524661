"""The command line: what each command prints, its JSON, its exit status, and one clear line for every kind of bad input."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bandtheory
from bandtheory import terminal
from bandtheory.audit import audit
from bandtheory.catalogue import examples
from bandtheory.cli import COMMANDS, main
from bandtheory.evidence import batch

COMMAND = [sys.executable, "-m", "bandtheory"]


class Run:
    """`main` on some arguments: exit status and what was printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *arguments: str) -> None:
        capsys.readouterr()
        self.status = main(list(arguments))
        self.out, self.err = capsys.readouterr()

    @property
    def json(self) -> Any:
        return json.loads(self.out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


@pytest.fixture(autouse=True)
def no_terminal_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Test runners that start workers may set it."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    return lambda *arguments: Run(capsys, *arguments)


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    """Two tokens of p = ½: r = 1.5 with A = 1, and r = ½ with A = −1."""
    path = tmp_path / "tokens.npz"
    old = np.full(2, math.log(0.5))
    np.savez(path, old_logp=old, new_logp=old + np.log([1.5, 0.5]), advantage=np.array([1.0, -1.0]))
    return path


class FakeReport:
    def __init__(self, divergence: str, passed: bool) -> None:
        self.divergence, self.passed = divergence, passed

    def to_dict(self) -> dict[str, Any]:
        return {"passed": self.passed, "worst": math.inf}

    def __rich__(self) -> str:
        return f"report: {self.passed}"


@pytest.fixture
def fake_verify(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, int]]:
    """Stands in for the verification, which takes its time: everything passes but `u - 1/u`, which is not convex."""
    calls: list[tuple[str, str, int]] = []

    def verify_several(targets: Any, *, effort: str, seed: int, progress: Any, **_: Any) -> Iterator[FakeReport]:
        for target in targets:
            calls.append((target.divergence, effort, seed))
            progress(1, 1, "tightness")
            yield FakeReport(target.divergence, target.divergence != "u - 1/u")

    monkeypatch.setattr(batch, "verify_several", verify_several)
    return calls


def test_list_names_the_catalogue_with_limits_and_closed_forms(run: Any) -> None:
    rows = {row["name"]: row for row in run("list", "--json").json["divergences"]}
    assert tuple(rows) == examples()
    assert rows["kl"] == {
        "name": "kl",
        "title": "KL(P‖Q), the divergence of the BandPO paper",
        "generator": "-log(u)",
        "parameter": None,
        "value_at_zero": "inf",
        "recession_slope": 0,
        "closed_form": False,
    }
    assert (rows["tv"]["value_at_zero"], rows["tv"]["recession_slope"], rows["tv"]["closed_form"]) == (0.5, 0.5, True)


def test_the_list_prints_as_a_table(run: Any) -> None:
    done = run("list")
    assert (done.status, done.err) == (0, "")
    (line,) = [line for line in done.out.splitlines() if " squared_hellinger " in line]
    assert [cell.strip() for cell in line.split("│")[-4:-1]] == ["1", "1", "found"]


def test_derive_prints_the_statements(run: Any) -> None:
    done = run("derive", "tv")
    assert done.status == 0
    assert done.out == f"{bandtheory.derive('tv')}\n"


def test_derive_prints_latex(run: Any) -> None:
    assert run("derive", "tv", "--latex").out == bandtheory.derive("tv").latex()


def test_derive_as_json(run: Any) -> None:
    result = run("derive", "kl", "--json").json
    assert (result["generator"], result["value_at_zero"], result["recession_slope"]) == ("-log(u)", "inf", "0")
    assert result["constraint"]["right"] == "delta"
    assert result["limits"] == {"mass_at_zero": "1 - exp(-delta)", "lower_at_one": "exp(-delta)"}
    assert (result["closed_form"], result["upper"], result["lower"]) == (False, None, None)
    assert result["latex"].startswith("\\begin{align*}")


def test_an_expression_may_start_with_a_minus_sign(run: Any) -> None:
    assert run("derive", "-log(u)", "--json").json["name"] == "-log(u)"


def test_bounds_as_json_are_those_of_the_library(run: Any) -> None:
    result = run("bounds", "kl", "--delta", "0.1", "--p", "0.25", "0.5", "--max-ratio", "1.5", "--json").json
    lower, upper = bandtheory.log_bounds(np.array([0.25, 0.5]), divergence="kl", delta=0.1, max_ratio=1.5)
    assert [row["log_lower"] for row in result["rows"]] == lower.tolist()
    assert [row["log_upper"] for row in result["rows"]] == upper.tolist()
    assert [row["upper"] for row in result["rows"]] == np.exp(upper).tolist()
    assert [row["p"] for row in result["rows"]] == [0.25, 0.5]
    assert (result["divergence"], result["delta"], result["max_ratio"]) == ("kl", 0.1, 1.5)
    assert result["evidence"].startswith("root")


def test_bounds_from_log_probabilities_reach_where_p_underflows(run: Any) -> None:
    """tv: upper = 1 + δ/p and log upper = log δ + 800 to double precision; lower = 0."""
    result = run("bounds", "tv", "--logp", "-800", "--json").json
    (row,) = result["rows"]
    assert row["log_upper"] == pytest.approx(math.log(0.05) + 800, rel=1e-14)
    assert (row["p"], row["upper"], row["lower"], row["log_lower"]) == (0, "inf", 0, "-inf")
    assert result["max_ratio"] == "inf"


def test_bounds_print_as_a_table_with_their_evidence(run: Any) -> None:
    done = run("bounds", "tv", "--p", "0.5")
    cells = [cell.strip() for line in done.out.splitlines() if "│" in line for cell in line.split("│")[1:-1]]
    assert cells[:4] == ["0.5", "-0.693147", "0.9", "1.1"]
    assert "evidence: closed form" in done.out
    assert "δ = 0.05" in done.out


def test_bounds_without_probabilities_show_a_grid(run: Any) -> None:
    p = [row["p"] for row in run("bounds", "tv", "--json").json["rows"]]
    assert (len(p), p[0], p[-1]) == (18, 1e-6, 0.999)


def test_verify_passes_effort_and_seed_on_and_exits_with_zero(run: Any, fake_verify: list[Any]) -> None:
    done = run("verify", "kl", "tv", "--effort", "quick", "--seed", "3")
    assert fake_verify == [("kl", "quick", 3), ("tv", "quick", 3)]
    assert (done.status, done.err) == (0, "")
    assert done.out.splitlines() == ["report: True", "report: True", "all 2 passed"]


def test_a_failed_check_exits_with_one(run: Any, fake_verify: list[Any]) -> None:
    done = run("verify", "kl", "u - 1/u")
    assert done.status == 1
    assert done.out.splitlines()[-1] == "1 of 2 failed: u - 1/u"


def test_verify_as_json(run: Any, fake_verify: list[Any]) -> None:
    done = run("verify", "u - 1/u", "--json")
    assert done.status == 1
    assert done.json == {"passed": False, "reports": [{"passed": False, "worst": "inf"}]}


def test_verify_all_covers_the_catalogue(run: Any, fake_verify: list[Any]) -> None:
    assert run("verify", "--all").status == 0
    assert [call[0] for call in fake_verify] == list(examples())


def test_nothing_is_verified_if_one_name_is_unknown(run: Any, fake_verify: list[Any]) -> None:
    assert run("verify", "kl", "kll").status == 2
    assert fake_verify == []


def test_the_real_verification_of_a_faulty_generator_says_where_it_fails(run: Any) -> None:
    done = run("verify", "u - 1/u", "--effort", "quick", "--json")
    (report,) = done.json["reports"]
    assert (done.status, done.json["passed"], report["passed"]) == (1, False, False)
    assert "not convex near u = " in report["checks"][0]["counterexample"]


def test_the_real_verification_passes_a_shipped_divergence(run: Any) -> None:
    done = run("verify", "tv", "--effort", "quick")
    assert done.status == 0
    assert "tv: verified" in done.out


def test_audit_as_json_is_the_report(run: Any, tokens: Path) -> None:
    done = run("audit", str(tokens), "--rules", "clip", "none", "--json")
    assert done.json == audit(tokens, ["clip", "none"]).to_dict()
    assert done.json["rules"][1]["widest_upper"] == "inf"


def test_audit_prints_tables(run: Any, tokens: Path) -> None:
    done = run("audit", str(tokens), "--rules", "clip")
    assert (done.status, done.err) == (0, "")
    assert "1 (50.00 %)" in done.out


def test_the_example_is_bundled_and_its_place_is_not_told(run: Any) -> None:
    result = run("audit", "example", "--rules", "clip", "--json").json
    assert (result["source"], result["tokens"]) == ("example", 4961)


def test_audit_draws_its_figure(run: Any, tokens: Path, tmp_path: Path) -> None:
    figure = tmp_path / "audit.svg"
    done = run("audit", str(tokens), "--rules", "clip", "--plot", str(figure), "--json")
    assert done.json["tokens"] == 2
    assert b"<svg" in figure.read_bytes()


@pytest.mark.parametrize("show", ["both", "ratio", "change"])
def test_plot_writes_the_figure_it_names(run: Any, tmp_path: Path, show: str) -> None:
    figure = tmp_path / "rules.png"
    done = run("plot", "--rules", "clip", "band:tv:0.05", "--show", show, "--out", str(figure))
    assert (done.status, done.out.replace("\n", ""), done.err) == (0, f"wrote {figure}", "")
    assert figure.read_bytes().startswith(b"\x89PNG")


BAD_INPUT = {
    "no command": ([], "Expected one of {list, derive, bounds, verify, audit, plot, table}"),
    "unknown command": (["bond", "kl"], "unknown command 'bond'; did you mean 'bounds'?"),
    "unknown option": (["verify", "kl", "--al"], "Unrecognized options: --al. Perhaps you meant: --all;"),
    "missing argument": (["bounds"], "Missing from bandtheory bounds: DIVERGENCE; see 'bandtheory bounds --help'"),
    "missing value": (["bounds", "kl", "--delta"], "Missing value for argument '--delta'"),
    "not a number": (["bounds", "kl", "--p", "x"], "Error parsing --p: Could not find valid parse for arguments: ['x']"),
    "invalid choice": (["verify", "kl", "--effort", "dep"], "invalid choice 'dep' for argument '--effort'"),
    "surplus argument": (["list", "extra"], "Unrecognized options: extra"),
    "unknown divergence": (["derive", "ttv"], "unknown divergence 'ttv'; did you mean 'tv'?"),
    "not in the grammar": (["derive", "__import__(u)"], "not in the grammar"),
    "not zero at 1": (["derive", "u**2"], "f(1) = 1.0, expected 0"),
    "not convex": (["bounds", "sqrt(u) - 1"], "not convex near u = "),
    "a million characters": (["derive", "u+" * 500_000], "expression has 1000000 characters"),
    "a name of a million characters": (["derive", "u" * 1_000_000], "unknown divergence 'uuu"),
    "control characters": (["derive", "kl\n\x1b[31m"], r"has the character '\x1b'"),
    "latex and json": (["derive", "kl", "--latex", "--json"], "--latex and --json exclude each other"),
    "p and logp": (["bounds", "kl", "--p", "0.1", "--logp", "-1"], "--p and --logp exclude each other"),
    "p of 0": (["bounds", "kl", "--p", "0.5", "0"], "p = 0.0 at index (1,) is not a probability in (0, 1]"),
    "p above 1": (["bounds", "kl", "--p", "1.5"], "p = 1.5 at index (0,)"),
    "p not a number": (["bounds", "kl", "--p", "nan"], "p = nan at index (0,)"),
    "logp above 0": (["bounds", "kl", "--logp", "0.5"], "logp = 0.5 at index (0,)"),
    "negative radius": (["bounds", "kl", "--delta", "-1"], "delta = -1.0 is not a finite radius ≥ 0"),
    "infinite radius": (["bounds", "kl", "--delta", "inf"], "delta = inf is not a finite radius ≥ 0"),
    "cap below 1": (["bounds", "kl", "--max-ratio", "0.5"], "max_ratio = 0.5 is not a cap ≥ 1"),
    "nothing to verify": (["verify"], "name at least one divergence to verify, or give --all"),
    "names and all": (["verify", "kl", "--all"], "name at least one divergence to verify, or give --all (not both)"),
    "negative seed": (["verify", "kl", "--seed", "-1"], "--seed is -1; accepted: an integer of at least 0"),
    "missing file": (["audit", "missing.npz"], "missing.npz: no such file"),
    "not an array file": (["audit", __file__], "has an unknown format; accepted: an npz or safetensors file"),
    "unknown rule": (["audit", "example", "--rules", "clap"], "unknown rule 'clap'; did you mean 'clip'?"),
    "no rule": (["audit", "example", "--rules"], "rules is empty"),
    "band of an unknown divergence": (["plot", "--rules", "band:kll:0.05", "--out", "a.png"], "did you mean 'kl'?"),
    "band of negative radius": (["plot", "--rules", "band:kl:-1", "--out", "a.png"], "delta = -1.0"),
    "unknown suffix": (["plot", "--out", "a.gif"], "'.gif'; accepted: .png, .svg, .pdf"),
    "missing directory": (["plot", "--out", "missing/a.png"], "missing: no such directory"),
    "missing directory of an audit": (["audit", "example", "--plot", "missing/a.png"], "missing: no such directory"),
    "no file to write": (["plot"], "Missing from bandtheory plot: --out FILE"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_one_clear_line_exit_status_two_and_no_file(
    run: Any, case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments, expected = BAD_INPUT[case]
    done = run(*arguments)
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith("bandtheory: error: ")
    assert done.err.count("\n") == 1
    assert done.err.endswith("\n")
    assert expected in done.err
    assert len(done.err) < 700
    assert done.err[:-1].isprintable()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("field", ["old_logp", "new_logp", "advantage"])
def test_a_file_without_an_array_is_refused(run: Any, tmp_path: Path, field: str) -> None:
    arrays = {name: np.zeros(2) for name in ("old_logp", "new_logp", "advantage") if name != field}
    np.savez(tmp_path / "a.npz", **arrays)  # type: ignore[arg-type]
    done = run("audit", str(tmp_path / "a.npz"))
    assert (done.status, done.err.count("\n")) == (2, 1)
    assert f"missing array '{field}'" in done.err


def test_a_failing_audit_leaves_no_figure(run: Any, tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(b"PK damaged")
    done = run("audit", str(tmp_path / "a.npz"), "--plot", str(tmp_path / "a.png"))
    assert (done.status, done.err.count("\n")) == (2, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["a.npz"]


def test_a_missing_package_is_one_line_with_its_remedy(
    run: Any, fake_verify: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def verify_several(*_: Any, **__: Any) -> Iterator[FakeReport]:
        raise ImportError("python-flint is missing; install bandtheory[proofs]")
        yield

    monkeypatch.setattr(batch, "verify_several", verify_several)
    done = run("verify", "kl")
    assert (done.status, done.err) == (2, "bandtheory: error: python-flint is missing; install bandtheory[proofs]\n")


def test_an_interrupt_is_quiet(run: Any, fake_verify: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def verify_several(*_: Any, **__: Any) -> Iterator[FakeReport]:
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(batch, "verify_several", verify_several)
    done = run("verify", "kl")
    assert (done.status, done.out, done.err) == (130, "", "")


def test_version(run: Any) -> None:
    assert run("--version").out == f"bandtheory {bandtheory.__version__}\n"


def test_help_has_one_line_and_one_example_for_each_command(run: Any) -> None:
    done = run("--help")
    assert (done.status, done.err) == (0, "")
    for name in COMMANDS:
        assert f"• {name} " in done.out
        assert f"Example: bandtheory {name}" in done.out


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_explains_itself(run: Any, command: str) -> None:
    done = run(command, "--help")
    assert done.status == 0
    assert f"Example: bandtheory {command}" in done.out


@pytest.mark.parametrize("command", ["list", "derive", "bounds", "verify", "audit", "table"])
def test_every_command_that_reports_has_json(run: Any, command: str) -> None:
    assert "--json" in run(command, "--help").out


@pytest.mark.parametrize("frame", ["╭─│╰", "+-|+"])
def test_the_frame_of_a_usage_error_is_taken_off(frame: str) -> None:
    corner, line, side, end = frame
    rows = [
        " Missing from bandtheory plot:  ",
        "     --out FILE                 ",
        "         File to write.         ",
        f" {line * 30} ",
    ]
    rows += [" For full helptext, run:        ", "     bandtheory plot --help     "]
    top, bottom = f"{corner}{line} Required options {line * 14}+", f"{end}{line * 32}+"
    box = "\n".join([top, *(f"{side}{row}{side}" for row in rows), bottom]) + "\n"
    expected = "Missing from bandtheory plot: --out FILE; see 'bandtheory plot --help'"
    assert terminal.in_one_line(box, "bandtheory") == expected


def test_json_has_strings_for_what_json_has_no_number_for() -> None:
    value = {"a": (math.inf, -math.inf, math.nan, 1.5), "b": np.array([np.inf, 2]), "c": np.float64(3), "d": None, "e": True}
    assert terminal.plain(value) == {"a": ["inf", "-inf", "nan", 1.5], "b": ["inf", 2.0], "c": 3.0, "d": None, "e": True}


def test_progress_in_a_log_is_plain_lines_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 1.0, 2.5, 2.5, 3.0, 5.0, 5.0])
    monkeypatch.setattr(terminal.time, "monotonic", lambda: next(clock))
    with terminal.progress("auditing") as report:
        for done in (1000, 2000, 3000):
            report(done, 3000)
        report(4, None, "tightness")
    assert capsys.readouterr() == ("", "auditing: 2,000 of 3,000\nauditing: 4 done, tightness\n")


def test_progress_on_a_terminal_is_a_bar_on_standard_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with terminal.progress("auditing") as report:
        report(3, 3, "[bold]")
    out, err = capsys.readouterr()
    assert out == ""
    assert "auditing: [bold]" in err
    assert "100%" in err


def test_the_module_runs_as_a_command() -> None:
    done = subprocess.run([*COMMAND, "bounds", "tv", "--p", "0.5", "--json"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["rows"][0]["upper"] == pytest.approx(1.1)
    assert done.stderr == ""


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    with subprocess.Popen([*COMMAND, "derive", "tv"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 128 + signal.SIGPIPE


def test_help_loads_none_of_the_heavy_packages() -> None:
    heavy = ("numpy", "scipy", "sympy", "matplotlib", "torch", "cvxpy", "hypothesis", "rich")
    code = f"import sys; from bandtheory.cli import main; main(['--help']); print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
