"""`bandtheory verify`: Python files, several processes, interruption and resumption, and one clear line for bad references."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from bandtheory.cli import main
from bandtheory.divergence import FDivergence
from bandtheory.evidence import batch, kept_checks
from bandtheory.evidence.batch import verify_several
from bandtheory.evidence.kept_checks import Records, default_path
from bandtheory.evidence.user_files import SourceError, Target, is_reference, load
from bandtheory.evidence.verification import Check, check_names
from bandtheory.evidence.workers import Event

ROOT = Path(__file__).resolve().parents[1]
TEMPLATE = ROOT / "docs" / "divergence_template.py"
COMMAND = [sys.executable, "-m", "bandtheory", "verify"]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        status = main(["verify", *map(str, arguments)])
        return status, *capsys.readouterr()

    return run


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(
        "import numpy as np\n"
        "from fractions import Fraction\n"
        "from bandtheory import FDivergence\n"
        "print('this file runs')\n"
        "half = FDivergence('half', 'abs(u - 1)**k', parameters=(('k', Fraction(3, 2)),))\n"
        "concave = FDivergence('concave', '1 - (u - 1)**2 - 1')\n"
        "number = 3\n"
        "def wrong(logp, delta):\n"
        "    return -np.ones_like(logp), np.minimum(np.ones_like(logp), -logp)\n",
        encoding="utf-8",
    )
    return path


# --- Python files ------------------------------------------------------------------------------------------------------------


def test_an_object_in_a_file_is_verified_and_the_execution_announced(run: Any, file: Path) -> None:
    status, out, err = run(f"{file}:half", "--effort", "quick", "--json")
    assert status == 0
    assert err.startswith(f"executing {file}\nthis file runs\n")  # what the file prints does not get into the JSON
    assert json.loads(out)["reports"][0]["divergence"] == "half"


def test_a_faulty_object_in_a_file_is_a_finding(run: Any, file: Path) -> None:
    status, out, _ = run(f"{file}:concave", "--effort", "quick")
    assert status == 1
    assert "f is not convex near u = 1" in out


def test_own_bounds_are_judged_and_the_line_that_reproduces_the_failure_runs(run: Any, file: Path) -> None:
    status, out, _ = run("kl", "--bounds", f"{file}:wrong", "--effort", "quick", "--json")
    (report,) = json.loads(out)["reports"]
    failed = {check["name"]: check["counterexample"] for check in report["checks"] if check["passed"] is False}
    assert status == 1
    assert {"upper bound", "lower bound", "certificate"} <= set(failed)
    code = failed["upper bound"].partition("  reproduce\n")[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60, cwd=file.parent)
    assert done.stdout.splitlines()[-1].startswith("(array([-1.")


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("none.py:x", "no such file: "),
        ("mine.py:other", "mine.py has no 'other'; it has half, concave"),
        ("mine.py:number", "mine.py:number is of type int, expected an FDivergence; it has half, concave"),
        ("mine.py", "does not say which object is meant, as in "),
    ],
)
def test_a_reference_that_leads_nowhere_is_one_line(run: Any, file: Path, reference: str, message: str) -> None:
    status, out, err = run(file.parent / reference)
    assert (status, out) == (2, "")
    assert err.splitlines()[-1].startswith("bandtheory: error: ")
    assert message in err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1 +", "is not Python: invalid syntax, line 1"),
        ("import sys\nsys.exit(3)", "cannot be executed: SystemExit: 3 (line 2)"),
        ("1/0", "cannot be executed: ZeroDivisionError: division by zero (line 1)"),
    ],
)
def test_a_file_that_cannot_be_executed(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "bad.py").write_text(text, encoding="utf-8")
    with pytest.raises(SourceError) as caught:
        load(f"{tmp_path / 'bad.py'}:x", FDivergence, "an FDivergence")
    assert message in str(caught.value)


def test_neither_names_nor_expressions_are_taken_for_files() -> None:
    assert not any(map(is_reference, ("kl", "vajda:3", "u*log(u)", "-log(u)")))
    assert is_reference("folder/file.py:name")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("kl", "tv", "--bounds", "a.py:b"), "--bounds belongs to one divergence; got 2"),
        (("--all", "--conic", "a.py:b"), "--conic belongs to one divergence; got 20"),
        (("kl", "--bounds", "kl"), "'kl' is not a reference to a Python file; accepted: path/to/file.py:name"),
        (("kl", "--workers", "0"), "--workers is 0; accepted: an integer of at least 1"),
        (("kl", "--fresh"), "--fresh is about kept checks: it goes with --state FILE or --effort deep"),
    ],
)
def test_wrong_usage_is_one_line(run: Any, arguments: tuple[str, ...], message: str) -> None:
    assert run(*arguments) == (2, "", f"bandtheory: error: {message}\n")


# --- the template ------------------------------------------------------------------------------------------------------------


def test_the_template_passes_as_tests() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", str(TEMPLATE), "-vv", "-p", "no:cacheprovider", "-k", "test_band or upper or program"],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout
    assert "test_band[mixed_chi2_0.25-upper_bound] PASSED" in done.stdout


@pytest.mark.parametrize("more", [(), ("--conic", f"{TEMPLATE}:fourth_power_conic")])
def test_the_template_is_verified(run: Any, more: tuple[str, ...]) -> None:
    status, out, _ = run(f"{TEMPLATE}:fourth_power", "--effort", "quick", "--json", *more)
    assert status == 0
    (check,) = [check for check in json.loads(out)["reports"][0]["checks"] if check["name"] == "convex program"]
    assert check["passed"] is (True if more else None)


# --- several processes -------------------------------------------------------------------------------------------------------


def facts(report: Any) -> list[Check]:
    return [dataclasses.replace(check, seconds=0.0) for check in report.checks]


def test_processes_find_what_one_process_finds_in_the_order_of_the_names() -> None:
    heard: list[tuple[int, int, str]] = []
    names = ["u - 1/u", "vajda:3", "tv"]
    together = list(verify_several(names, effort="quick", workers=2, progress=lambda *event: heard.append(event)))
    alone = list(verify_several(names, effort="quick"))
    assert [report.divergence for report in together] == names
    assert [check.name for check in together[1].checks] == list(check_names())
    assert [(c.name, c.passed) for r in together for c in r.checks] == [(c.name, c.passed) for r in alone for c in r.checks]
    assert (heard[-1][0], heard[-1][1]) == (1 + 2 * len(check_names()), 1 + 2 * len(check_names()))


def test_a_file_that_fails_only_in_the_process_is_an_error_not_a_hang(tmp_path: Path) -> None:
    path = tmp_path / "once.py"
    path.write_text(
        "import multiprocessing, os\n"
        "from bandtheory import FDivergence\n"
        "if multiprocessing.parent_process(): os._exit(7)\n"
        "f = FDivergence('f', '(u - 1)**2')\n",
        encoding="utf-8",
    )
    with pytest.raises(ChildProcessError, match="ended with exit code 7"):
        list(verify_several([f"{path}:f", "tv"], effort="quick", workers=2))


@pytest.mark.skipif(os.name != "posix", reason="signals of a terminal")
def test_ctrl_c_ends_all_processes_quietly(tmp_path: Path) -> None:
    command = [*COMMAND, "kl", "tv", "--workers", "2", "--effort", "deep", "--state", str(tmp_path / "state.json")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    wait_for_checks(tmp_path / "state.json", 2)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the processes get it too
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == ""
    assert "Traceback" not in err
    assert "the same command goes on" in err
    assert nobody_is_left_of(process.pid)


def nobody_is_left_of(group: int) -> bool:
    """Whether the group ends within a moment: multiprocessing's own helper process takes one."""
    for _ in range(200):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def wait_for_checks(state: Path, count: int) -> list[str]:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        if state.exists():
            found = [check["name"] for checks in json.loads(state.read_text())["checks"].values() for check in checks]
            if len(found) >= count:
                return found
        time.sleep(0.05)
    raise AssertionError("no checks were kept")


# --- interruption and resumption ---------------------------------------------------------------------------------------------


def test_after_a_kill_the_same_command_makes_only_the_missing_checks(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    command = [*COMMAND, "tv", "--workers", "1", "--effort", "quick", "--json", "--state", str(state)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for_checks(state, 3)
    process.kill()
    process.wait(timeout=60)
    kept = wait_for_checks(state, 3)
    before = {check["name"]: check for checks in json.loads(state.read_text())["checks"].values() for check in checks}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0
    assert f"{len(kept)} checks were made before and are not repeated" in done.stderr
    after = {check["name"]: check for check in json.loads(done.stdout)["reports"][0]["checks"]}
    assert list(after) == list(check_names())
    assert {name: after[name] for name in kept} == before  # to the last digit of their seconds


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Stands in for the checks: each passes at once; records which were asked for."""
    asked: list[tuple[str, ...]] = []

    def instead(board: Any) -> Any:
        while board.jobs:
            job = board.jobs.popleft()
            asked.append(job.names)
            for name in job.names:
                yield Event(job.index, Check(name, "theorem 0", worst=1e-16, seconds=0.5))
            yield Event(job.index)

    monkeypatch.setattr(batch, "here", instead)
    return asked


def reports(path: Path, effort: str = "deep", seed: int = 0, spec: str | Target = "tv") -> tuple[list[Any], list[str]]:
    warnings: list[str] = []
    return list(verify_several([spec], effort=effort, seed=seed, records=Records(path, warnings.append))), warnings


def test_deep_checks_are_jobs_of_their_own_and_none_is_repeated(jobs: list[Any], tmp_path: Path) -> None:
    ((first,), _), ((second,), warnings) = (reports(tmp_path / "a.json") for _ in range(2))
    assert jobs == [(name,) for name in check_names()]
    assert (facts(first), first.seconds) == (facts(second), second.seconds)
    assert warnings == []


def test_another_effort_seed_or_generator_is_not_reused(jobs: list[Any], tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    count = len(check_names())
    reports(path)
    for change in ({"seed": 1}, {"spec": "kl"}, {"spec": "renyi:3"}, {"spec": "alpha:3"}):
        jobs.clear()
        reports(path, **change)
        assert len(jobs) == count, change
    jobs.clear()
    reports(path, effort="quick")
    assert jobs == [check_names()]


def test_a_change_of_the_functions_file_is_noticed(jobs: list[Any], tmp_path: Path, file: Path) -> None:
    target = Target("tv", bounds=f"{file}:wrong")
    reports(tmp_path / "a.json", spec=target)
    file.write_text(file.read_text() + "\n# edited\n", encoding="utf-8")
    reports(tmp_path / "a.json", spec=target)
    assert len(jobs) == 2 * len(check_names())


def test_another_version_is_not_reused(jobs: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reports(tmp_path / "a.json")
    monkeypatch.setattr(kept_checks, "_version", lambda: "bandtheory 99")
    _, (warning,) = reports(tmp_path / "a.json")
    assert "this is bandtheory 99: its checks are made again" in warning
    assert len(jobs) == 2 * len(check_names())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"format": "F",', "it is not JSON"),
        ("", "it is not JSON"),
        ('["F"]', "it is not a record of verifications"),
        ('{"format": "F", "version": "V", "checks": {"key": [{"name": "order"}]}}', "fields other than those of a check"),
        ('{"format": "F", "version": "V", "checks": 5}', "a check in it cannot be read"),
    ],
)
def test_a_damaged_state_is_reported_ignored_and_set_aside(
    jobs: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, why: str
) -> None:
    monkeypatch.setattr(kept_checks, "FORMAT", "F")
    monkeypatch.setattr(kept_checks, "_version", lambda: "V")
    path = tmp_path / "a.json"
    path.write_text(text, encoding="utf-8")
    (report,), (warning,) = reports(path)
    assert why in warning
    assert "is damaged and was ignored" in warning
    assert (tmp_path / "a.json.damaged").read_text(encoding="utf-8") == text
    assert report.passed
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.json", "a.json.damaged"]


@pytest.mark.parametrize("content", [b"my = 'program'\n", b'{"a": 1}', b"\xff\xfe"])
def test_a_file_that_holds_something_else_is_refused_and_untouched(run: Any, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "mine.py"
    path.write_bytes(content)
    status, _, err = run("tv", "--state", path)
    assert (status, path.read_bytes(), len(list(tmp_path.iterdir()))) == (2, content, 1)
    assert "mine.py holds something else than finished checks" in err


def test_a_state_that_cannot_be_written_is_one_line(run: Any, tmp_path: Path) -> None:
    (tmp_path / "in_the_way").write_text("")
    status, _, err = run("tv", "--state", tmp_path / "in_the_way" / "state.json")
    assert status == 2
    assert err.startswith("bandtheory: error: ")


def test_deep_keeps_its_checks_in_the_users_cache(
    run: Any, jobs: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for words in ("finished checks are kept", f"{len(check_names())} checks were made before", "finished checks are kept"):
        more = ("--fresh",) if words == "finished checks are kept" and jobs else ()
        status, _, err = run("tv", "--effort", "deep", "--workers", "1", *more)
        assert status == 0
        assert f"note: {words}" in err
        assert err.count(str(default_path())) == 1
    assert len(jobs) == 2 * len(check_names())


def test_effort_and_workers_are_named() -> None:
    with pytest.raises(ValueError, match="effort is 'fast'; accepted: quick, default, deep"):
        verify_several(["tv"], effort="fast")
    with pytest.raises(ValueError, match="workers is 0; accepted: an integer of at least 1"):
        verify_several(["tv"], workers=0)
