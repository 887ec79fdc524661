"""One small run of the whole reproduction, shared by the tests that look at what it wrote."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchmarks import reproduce

SMALL = ("--divergences", "tv", "--effort", "quick", "--seeds", "2", "--steps", "2")


@dataclass(frozen=True)
class Run:
    """Exit status, lines printed and files written."""

    status: int
    lines: list[str]
    report: dict[str, Any]
    html: str


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    out: Path = tmp_path_factory.mktemp("reproduce") / "new" / "folder"
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        status = reproduce.main(["--out", str(out), *SMALL])
    report = json.loads((out / "report.json").read_text(encoding="utf-8"))
    assert sorted(path.name for path in out.iterdir()) == ["report.html", "report.json"]
    return Run(status, printed.getvalue().splitlines(), report, (out / "report.html").read_text(encoding="utf-8"))
