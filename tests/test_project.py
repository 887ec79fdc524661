"""Habits of the project that no other test would notice: imports, versions, packaging, and what tracked files may not hold."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from setuptools import find_packages

import bandtheory

ROOT = Path(__file__).resolve().parents[1]
HEAVY = ("sympy", "mpmath", "flint", "z3", "scipy", "torch", "cvxpy", "matplotlib", "hypothesis", "tyro", "rich", "safetensors")
IMPORT_SECONDS = 0.5


@pytest.fixture(scope="module")
def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def _in_a_new_process(code: str) -> Any:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT, timeout=120)
    return json.loads(done.stdout)


def _tracked_texts() -> dict[str, str]:
    """The text files that are or would be under version control; all files of the source tree where there is no git."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            check=True,
            timeout=60,
        ).stdout
        names = listed.decode().split("\0")
    except (OSError, subprocess.CalledProcessError):
        names = []
    folders = ("bandtheory", "benchmarks", "proofs", "tests", "trainer")
    found = [ROOT / name for name in names if name] or [
        *(path for path in ROOT.iterdir() if path.is_file()),
        *(path for folder in folders for path in (ROOT / folder).rglob("*") if "__pycache__" not in path.parts),
    ]
    texts = {}
    for path in found:
        if path.is_file() and b"\0" not in (data := path.read_bytes()):
            texts[str(path.relative_to(ROOT))] = data.decode("utf-8")
    return texts


# --- importing ---------------------------------------------------------------------------------------------------------------


def test_importing_loads_numpy_and_no_other_package() -> None:
    code = "import json, sys, bandtheory; print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    loaded = set(_in_a_new_process(code))
    assert "bandtheory" in loaded
    assert loaded.isdisjoint(HEAVY)


def test_importing_takes_less_than_half_a_second() -> None:
    code = "import time; s = time.perf_counter(); import bandtheory; print(time.perf_counter() - s)"
    assert min(_in_a_new_process(code) for _ in range(3)) < IMPORT_SECONDS


@pytest.mark.parametrize("name", bandtheory.__all__)
def test_every_public_name_resolves_to_its_object(name: str) -> None:
    found = getattr(bandtheory, name)
    if name != "__version__":
        assert found.__name__ == name
        assert found.__module__.startswith("bandtheory.")
        assert found.__doc__


def test_a_public_name_stays_a_function_after_its_module_is_imported() -> None:
    code = "import bandtheory, bandtheory.bounds; print(int(callable(bandtheory.bounds)))"
    assert _in_a_new_process(code) == 1


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'bandtheory' has no attribute 'bound'"):
        _ = bandtheory.bound


# --- versions and packaging --------------------------------------------------------------------------------------------------


def test_one_version_everywhere(pyproject: dict[str, Any]) -> None:
    assert pyproject["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "bandtheory._version.__version__"}
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"^version: (.+)$", citation, re.MULTILINE) == [bandtheory.__version__]
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\S+)", changelog, re.MULTILINE)[0] == bandtheory.__version__


def test_the_wheel_holds_the_library_and_nothing_else(pyproject: dict[str, Any]) -> None:
    packages = find_packages(str(ROOT), **pyproject["tool"]["setuptools"]["packages"]["find"])
    assert {name.partition(".")[0] for name in packages} == {"bandtheory"}
    with_init = {str(path.parent.relative_to(ROOT)).replace("/", ".") for path in (ROOT / "bandtheory").rglob("__init__.py")}
    assert set(packages) == with_init


def test_every_folder_of_python_files_is_a_package() -> None:
    folders = {path.parent for path in (ROOT / "bandtheory").rglob("*.py")}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").is_file()] == []


def test_the_wheel_is_typed_and_has_the_example_tokens(pyproject: dict[str, Any]) -> None:
    (patterns,) = pyproject["tool"]["setuptools"]["package-data"].values()
    for name in ("py.typed", "data/chain_sum_tokens.npz", "data/README.md"):
        assert (ROOT / "bandtheory" / name).is_file()
        assert any(Path(name).match(pattern) for pattern in patterns)


def test_the_licence_is_the_whole_of_apache_2(pyproject: dict[str, Any]) -> None:
    assert pyproject["project"]["license"] == "Apache-2.0"
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert text.lstrip().startswith("Apache License\n")
    for part in ("TERMS AND CONDITIONS FOR USE", "9. Accepting Warranty", "APPENDIX: How to apply the Apache License"):
        assert part in text
    assert all((ROOT / name).is_file() for name in pyproject["project"]["license-files"])


# --- pinned environment ------------------------------------------------------------------------------------------------------


def _pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    matches = [re.fullmatch(r"([A-Za-z0-9._-]+)==([0-9][0-9A-Za-z.]*)", line) for line in lines if not line.startswith("#")]
    assert all(matches), "a line of constraints.txt is not NAME==VERSION"
    return {re.sub("[-_.]+", "-", match[1]).lower(): match[2] for match in matches if match}


def test_every_dependency_is_pinned(pyproject: dict[str, Any]) -> None:
    project = pyproject["project"]
    wanted = [*project["dependencies"], *(line for lines in project["optional-dependencies"].values() for line in lines)]
    names = {re.sub("[-_.]+", "-", re.split(r"[\[<>=!~; ]", line)[0]).lower() for line in wanted} - {"bandtheory"}
    assert names - set(_pins()) == {"triton"}  # torch for CUDA pins its own


def test_pins_name_no_build_of_one_machine() -> None:
    assert [name for name in _pins() if name.startswith(("nvidia-", "cuda-", "triton"))] == []


# --- tracked files -----------------------------------------------------------------------------------------------------------

# Written so that this file does not match them itself.
REGISTRY = re.compile(r"[p]ypi\.org|[p]ythonhosted\.org|[d]ownload\.pytorch|[r]egistry\.npm|[d]eb\.debian")
MACHINE_PATH = re.compile(r"/[w]ork/|/[r]oot/|/[h]ome/|/[U]sers/|/[t]mp/")


def test_no_tracked_file_names_a_package_registry() -> None:
    assert [name for name, text in _tracked_texts().items() if REGISTRY.search(text)] == []


def test_no_tracked_file_names_a_place_on_one_machine() -> None:
    assert [name for name, text in _tracked_texts().items() if MACHINE_PATH.search(text)] == []


def test_text_files_end_with_a_newline_and_have_no_trailing_blanks() -> None:
    ours = {name: text for name, text in _tracked_texts().items() if text and not name.startswith("tests/data/")}
    assert [name for name, text in ours.items() if not text.endswith("\n")] == []
    assert [name for name, text in ours.items() if re.search(r"[ \t\r]$", text, re.MULTILINE)] == []


def test_ci_runs_what_a_person_runs() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert script.startswith("#!/usr/bin/env bash\n")
    assert re.search(r"^make test\b", script, re.MULTILINE)


@pytest.mark.parametrize("name", ["reproduce", "test", "lint", "setup", "constraints", "clean", "help"])
def test_the_makefile_has_its_commands(name: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(rf"^{name}:", makefile, re.MULTILINE)


def test_every_module_can_be_imported() -> None:
    names = [
        str(path.relative_to(ROOT).with_suffix("")).replace("/", ".")
        for folder in ("bandtheory", "benchmarks", "trainer")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path.name not in ("__main__.py", "__init__.py")
    ]
    assert len(names) > 30
    for name in names:
        assert importlib.import_module(name).__doc__ or name.endswith("_version"), name
