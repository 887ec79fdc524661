"""Many tables: names that differ, tables that are what was asked for, and tasks in processes that fail or die."""

from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from bandtheory.catalogue import examples
from bandtheory.table_batch import Outcome, Request, Task, perform


@pytest.mark.parametrize(
    ("request_", "stem"),
    [
        (Request("kl", 0.05), "kl_delta0.05"),
        (Request("kl", 1.0), "kl_delta1"),
        (Request("kl", 1e-5), "kl_delta1e-05"),
        (Request("le_cam", 0.1, inside=True), "le_cam_delta0.1_inside"),
        (Request("alpha:-0.5", 0.1, dtype="float64"), "alpha_-0.5_delta0.1_float64"),
        (Request("alpha:1/3", 0.1, logp_min=-8.5, max_error=1e-4), "alpha_1over3_delta0.1_error0.0001_logp-8.5"),
        (Request("u*log(u) - u + 1", 0.1), "u-log-u-u-1-a828d41d4c_delta0.1"),  # of the SHA-256 of the text
    ],
)
def test_a_file_name_says_what_is_in_it(request_: Request, stem: str) -> None:
    assert request_.stem == stem


def test_no_two_tables_have_the_same_name_on_any_file_system() -> None:
    specs = [
        *examples(),
        "alpha:0.5",
        "alpha:1/3",
        "u*log(u)",
        "u*log(u) - u + 1",
        "u*log(u) - (u - 1)",
        "(u - 1)**2",
        "(u - 1)**4",
    ]
    variants: list[dict[str, Any]] = [
        {},
        {"inside": True},
        {"dtype": "float64"},
        {"max_error": 1e-4},
        {"logp_min": -8.0},
        {"max_error": 1e-3, "logp_min": -8.0},
    ]
    stems = [Request(spec, delta, **more).stem for spec in specs for delta in (0.0, 0.05, 0.5, 5e-7, 5.0) for more in variants]
    assert len({stem.lower() for stem in stems}) == len(stems)
    assert all(set(stem) <= set("abcdefghijklmnopqrstuvwxyz0123456789._-") for stem in stems)
    assert max(map(len, stems)) < 120


def test_the_end_of_the_domain_is_compared_as_it_is_stored() -> None:
    """−8.1 lies between two float32 and the table ends at the lower one."""
    request = Request("tv", 0.05, logp_min=-8.1, max_error=1e-3)
    table = request.build()
    assert table.logp_min < -8.1
    assert request.difference(table) is None
    assert dataclasses.replace(request, logp_min=-8.0).difference(table) == f"its logp_min is {table.logp_min!r}, not -8.0"
    assert dataclasses.replace(request, logp_min=-8.2).difference(table) is not None


@pytest.fixture
def actions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Tasks in a module that other processes can import."""
    (tmp_path / "table_actions.py").write_text(
        "import os, time\n"
        "def die(progress): os._exit(7)\n"
        "def wait(progress): time.sleep(60)\n"
        "def fail(progress): raise ZeroDivisionError('by zero')\n"
        "def work(progress):\n"
        "    progress(1, 3)\n"
        "    progress(3, 3)\n"
        "    return os.getpid()\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(tmp_path)
    return importlib.import_module("table_actions")


def outcomes(workers: int, *actions: Any) -> dict[int, Outcome]:
    tasks = [Task(action.__name__, action) for action in actions]
    return {outcome.index: outcome for outcome in perform(tasks, workers, lambda *_: None)}


@pytest.mark.parametrize("workers", [1, 2])
def test_a_task_that_fails_does_not_stop_the_others(actions: ModuleType, workers: int) -> None:
    found = outcomes(workers, actions.fail, actions.work, actions.work)
    assert found[0].error == "ZeroDivisionError: by zero"
    assert [(found[index].error, found[index].value > 0) for index in (1, 2)] == [(None, True)] * 2


def test_a_process_that_dies_is_reported_and_nobody_waits_for_the_others(actions: ModuleType) -> None:
    found = outcomes(2, actions.die, actions.wait)
    assert found[0].error is not None
    assert "die (table) ended with exit code 7" in found[0].error
    assert found[1].error == found[0].error


def test_progress_adds_up_rows_and_counts_tables(actions: ModuleType) -> None:
    heard: list[tuple[int, int | None, str]] = []
    tasks = [Task("a", actions.work), Task("b", actions.work)]
    list(perform(tasks, 1, lambda *event: heard.append(event)))
    assert heard[0] == (1, 6, "0 of 2 tables")  # the second is taken for as long as the first
    assert heard[-1] == (6, 6, "2 of 2 tables")
