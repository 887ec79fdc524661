"""The README's examples run as they stand there."""

from __future__ import annotations

import contextlib
import io
import re
import runpy
import shlex
import unittest
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
COMMANDS = re.findall(r"^\$ (.+)$", README, re.MULTILINE)


def test_the_examples_are_found() -> None:
    assert len(PYTHON) >= 5
    assert len(COMMANDS) >= 5


@pytest.mark.parametrize("code", PYTHON, ids=range(len(PYTHON)))
def test_python_example(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "example.py").write_text(code)
    with contextlib.redirect_stdout(io.StringIO()):
        names = runpy.run_path("example.py", run_name="example")
    for name, value in names.items():
        if name.startswith("test_"):  # a pytest example: run each of its cases
            (mark,) = value.pytestmark
            for case in mark.args[1]:
                with contextlib.suppress(unittest.SkipTest):  # a property that does not apply to this divergence
                    value(case)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all commands run, in their order: some read what others wrote."""
    found = tmp_path_factory.mktemp("commands")
    (found / "docs").symlink_to(ROOT / "docs")
    return found


@pytest.mark.parametrize("command", COMMANDS)
def test_command(command: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(folder)
    words = shlex.split(command)
    if words[0] == "bandtheory":
        from bandtheory.cli import main

        assert not main(words[1:])
    else:
        assert words[:3] == ["python", "-m", "trainer"]
        from trainer.__main__ import main as trainer_main

        assert not trainer_main(words[3:])
        assert (folder / words[words.index("--out") + 1] / "summary.json").exists()
    assert capsys.readouterr().out
