"""`python -m proofs`: what it prints, its JSON, its document, and its exit status."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proofs import registry, runner
from proofs.__main__ import main
from proofs.document import PACKAGES, document, in_text
from proofs.statement import Method, Outcome, Result, Statement, Status
from proofs.theorem_02_shape_in_ratio import minimum
from proofs.theorem_03_shape_in_probability import bregman, nested_bands

KEYS = {"name", "statement", "method", "rests_on", "status", "seconds", "detail"}


def _open(seconds: float) -> Outcome:
    return Outcome(Status.OPEN, "out of time")


TRUE = [minimum(), bregman()]
FALSE = replace(nested_bands("upper", grows=True), name="a false statement")
UNDECIDED = replace(minimum(), name="an open statement", prove=_open)


@pytest.fixture
def holds(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put some statements in the place of the registry."""
    monkeypatch.delenv("COLUMNS", raising=False)

    def put(*statements: Statement) -> None:
        found = {statement.name: statement for statement in statements}
        monkeypatch.setattr(registry, "all_statements", lambda: found)
        monkeypatch.setattr(runner, "all_statements", lambda: found)

    return put


def test_all_proved_is_exit_status_0(holds: Any, capsys: pytest.CaptureFixture[str]) -> None:
    holds(*TRUE)
    assert main(["--workers", "1"]) == 0
    out = capsys.readouterr().out
    named = [line.rpartition("  ")[0] for line in out.splitlines() if line.startswith("proved")]
    assert named == [f"proved   {statement.name}" for statement in TRUE]
    assert "symbolic; rests on: f convex on (0, ∞), kinks allowed: f' is any subgradient; f(1) = 0" in out
    assert re.search(r"^2 statements: 2 proved, 0 refuted, 0 open; \d+\.\d s$", out, re.MULTILINE)


@pytest.mark.parametrize(("statement", "word"), [(FALSE, "refuted"), (UNDECIDED, "open")])
def test_anything_else_is_exit_status_1_and_is_named(
    holds: Any, capsys: pytest.CaptureFixture[str], statement: Statement, word: str
) -> None:
    holds(*TRUE, statement)
    assert main(["--workers", "1"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2] == f"{word}: {statement.name}"
    assert f"2 proved, {int(word == 'refuted')} refuted, {int(word == 'open')} open" in lines[-1]


def test_the_counter_example_is_shown(holds: Any, capsys: pytest.CaptureFixture[str]) -> None:
    holds(FALSE)
    assert main(["--workers", "1"]) == 1
    assert "so the bound at p is no nearer to 1: counter-example: b = " in capsys.readouterr().out


def test_json_is_a_list_of_objects(holds: Any, capsys: pytest.CaptureFixture[str]) -> None:
    holds(*TRUE, FALSE)
    assert main(["--json", "--workers", "1"]) == 1
    rows = json.loads(capsys.readouterr().out)
    assert [set(row) for row in rows] == [KEYS] * 3
    assert [row["status"] for row in rows] == ["proved", "proved", "refuted"]
    first = rows[0]
    assert (first["name"], first["method"]) == ("theorem 2: minimum", "symbolic")
    assert first["rests_on"] == list(minimum().rests_on)
    assert isinstance(first["seconds"], float)


def test_statements_are_selected_by_parts_of_their_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list", "theorem 1:", "MIRROR"]) == 0
    names = capsys.readouterr().out.splitlines()
    assert names[0] == "theorem 1: reduction to two outcomes"
    assert names[-2:] == ["theorem 5: mirror, lower bound", "theorem 5: mirror, upper bound"]
    assert all(name.startswith("theorem 1:") or "mirror" in name for name in names)


def test_the_list_holds_every_theorem_and_the_closed_forms(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    names = capsys.readouterr().out.splitlines()
    assert {name.partition(":")[0] for name in names} >= {f"theorem {number}" for number in range(1, 12)}
    assert {f"{name} closed form" for name in ("tv", "neyman_chi2", "le_cam", "squared_hellinger", "hockey_stick:γ")} <= set(
        names
    )
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--seconds", "0"], "--seconds must be positive and finite, got 0"),
        (["--seconds", "inf"], "--seconds must be positive and finite, got inf"),
        (["--workers", "0"], "--workers must be from 1 to 64, got 0"),
        (["--json", "--latex"], "--json, --latex and --list exclude each other"),
        (["--bogus"], "Unrecognized options: --bogus; see 'python -m proofs --help'"),
        (["theorem 12"], "no statement has 'theorem 12' in its name; did you mean 'theorem "),
    ],
)
def test_wrong_usage_is_exit_status_2_and_one_line(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"python -m proofs: error: {complaint}")
    assert err.count("\n") == 1


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError("No module named 'z3'", name="z3")

    monkeypatch.setattr(registry.importlib, "import_module", missing)
    monkeypatch.setattr(registry, "all_statements", registry.all_statements.__wrapped__)
    assert main(["--list"]) == 2
    remedy = "z3-solver is missing; install bandtheory[proofs], in a checkout: pip install '.[proofs]'"
    assert capsys.readouterr().err == f"python -m proofs: error: {remedy}\n"


def test_processes_return_results_in_the_order_of_the_list() -> None:
    names = registry.select(["theorem 5:", "theorem 6:"])
    results = list(runner.prove_all(names, 60.0, 2))
    assert [result.name for result in results] == names
    assert {result.status for result in results} == {Status.PROVED}


def test_a_process_that_does_not_answer_is_ended_and_its_statement_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "GRACE", 0.0)  # no time to start in
    names = registry.select(["theorem 5:"])
    results = list(runner.prove_all(names, 0.01, 2))
    assert [(result.name, result.status) for result in results] == [(name, Status.OPEN) for name in names]
    assert {result.detail for result in results} == {"its process did not answer and was ended"}


# ---- the document


def _everything() -> list[Result]:
    """All statements of the registry as if they had been proved."""
    return [statement.result(Outcome(Status.PROVED), 0.0) for statement in registry.all_statements().values()]


def _without_escapes(text: str) -> str:
    return re.sub(r"\\[\\{}$%&#_|]", "", text)


def test_the_document_has_every_statement_and_the_derivations() -> None:
    text = document(_everything())
    for statement in registry.all_statements().values():
        assert statement.latex in text
        assert statement.derivation in text
    assert sum(bool(statement.derivation) for statement in registry.all_statements().values()) > 20


def test_the_document_is_ascii_and_its_braces_and_environments_balance() -> None:
    text = document(_everything())
    assert text.isascii()
    plain = _without_escapes(text)
    depth = 0
    for letter in plain:
        depth += {"{": 1, "}": -1}.get(letter, 0)
        assert depth >= 0
    assert depth == 0
    stack = []
    for kind, name in re.findall(r"\\(begin|end)\{(\w+\*?)\}", text):
        if kind == "begin":
            stack.append(name)
        else:
            assert stack.pop() == name
    assert not stack


def test_every_paragraph_closes_its_mathematics() -> None:
    for paragraph in document(_everything()).split("\n\n"):
        plain = _without_escapes(paragraph)
        assert plain.count("$") % 2 == 0, paragraph
        assert paragraph.count(r"\[") == paragraph.count(r"\]"), paragraph
        assert Counter(re.findall(r"\\(left|right)(?![a-z])", paragraph))["left"] == len(
            re.findall(r"\\right(?![a-z])", paragraph)
        ), paragraph
        display = r"\\\[.*?\\\]"
        assert "$" not in "".join(re.findall(display, plain, re.DOTALL)), paragraph


def test_commands_stand_in_mathematics() -> None:
    """Outside `$…$` and `\\[…\\]` only commands for text occur, all of them LaTeX's own."""
    text = document(_everything()).partition(r"\maketitle")[2]
    outside = re.sub(r"\$[^$]*\$|\\\[.*?\\\]", "", text.replace(r"\$", ""), flags=re.DOTALL)
    known = {"paragraph", "section", "emph", "textbf", "texttt", "par", "smallskip", "end", "dots"}
    known |= {"textbackslash", "textasciitilde", "textasciicircum", "quad"}
    assert set(re.findall(r"\\([A-Za-z]+)", outside)) <= known
    assert not re.search(r"(?<!\\)[_^]", outside)


def test_only_common_packages_are_loaded() -> None:
    assert (
        set(re.findall(r"\\usepackage(?:\[.*?\])?\{(\w+)\}", document([])))
        == set(PACKAGES)
        == {"amsmath", "amssymb", "geometry"}
    )


def test_a_character_without_latex_is_an_error_and_not_a_broken_document() -> None:
    assert in_text("δ ≤ 1/p & 50 %") == r"$\delta$ $\le$ 1/p \& 50 \%"
    with pytest.raises(ValueError, match=r"no LaTeX for '☃' \(U\+2603\)"):
        in_text("☃")


def test_the_status_of_what_is_not_proved_stands_out() -> None:
    result = Result("a name", "words", Method.LIMIT, ("nothing",), Status.OPEN, 1.0, "", "words")
    assert r"\emph{(\textbf{open}; limit; rests on: nothing)}" in document([result])


def test_latex_is_printed(holds: Any, capsys: pytest.CaptureFixture[str]) -> None:
    holds(*TRUE)
    assert main(["--latex", "--workers", "1"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("\\documentclass{article}\n") and out.endswith("\\end{document}\n")
    assert r"\section*{Theorem 3. Shape in the probability}" in out


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_the_document_compiles(tmp_path: Path) -> None:
    (tmp_path / "proofs.tex").write_text(document(_everything()), encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "proofs.tex"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=120)
