"""Where and with what a result was made, and how result files are written."""

from __future__ import annotations

import json
import os
import platform
import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bandtheory.processor import usable_cores

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Environment variables that numerical libraries read, once, when they are loaded."""

PACKAGES = ("bandtheory", "numpy", "scipy", "sympy", "mpmath", "cvxpy", "clarabel", "scs", "hypothesis", "torch", "matplotlib")


def describe(module: str, arguments: Sequence[str], packages: Sequence[str] = PACKAGES) -> dict[str, Any]:
    """Date, command, machine and versions of this run; `module` is what `python -m` was given."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": shlex.join(["python", "-m", module, *arguments]),
        "machine": {
            "processor": processor(),
            "cores": usable_cores(),
            "memory_gib": memory_gib(),
            "system": f"{platform.system()} {platform.machine()}",
        },
        "versions": {"python": platform.python_version()} | {name: version(name) for name in packages},
    }


def processor() -> str:
    """The model of the processor, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, "") or platform.processor() or platform.machine()


def memory_gib() -> float | None:
    """Physical memory in GiB, None where the system does not tell."""
    try:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None
    return round(size / 2**30, 1)


def json_bytes(record: Mapping[str, Any]) -> bytes:
    """One JSON value; infinities and NaN, which JSON has no number for, become the strings "inf", "-inf" and "nan"."""
    from bandtheory.terminal import plain

    return (json.dumps(plain(record), indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def write_together(contents: Mapping[Path, bytes]) -> None:
    """Write files under temporary names and rename them once all are complete; on an error none of them changes."""
    staged = {path: path.with_name(f".{path.name}.{os.getpid()}.partial") for path in contents}
    try:
        for path, temporary in staged.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.is_dir():
                raise IsADirectoryError(21, "is a directory; accepted: a file name", str(path))
            temporary.write_bytes(contents[path])
        for path, temporary in staged.items():
            temporary.replace(path)
    finally:
        for temporary in staged.values():
            temporary.unlink(missing_ok=True)


def one_thread_each() -> None:
    """Let the processes started from here use one thread each: there are as many of them as cores.

    Threads of numerical libraries spin while they wait, and two processes that both have some take several times as long.
    """
    for name in THREADS:
        os.environ.setdefault(name, "1")
