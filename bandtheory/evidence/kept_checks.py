"""Checks that were made, kept in a file, so that a verification that was interrupted goes on where it stopped.

The file is JSON. It is written anew after each check, under a temporary name, and then renamed: whatever kills the program,
the file is whole. It holds for one version of the library, source text included, and one Python; a check in it is used again
only for the same generator, radius, functions, effort and seed.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

from bandtheory._version import __version__
from bandtheory.evidence.verification import Check, check_names
from bandtheory.whole_files import write_whole

FORMAT = "bandtheory verification 1"
_TYPES: dict[str, tuple[type, ...]] = {
    "name": (str,),
    "theorem": (str,),
    "inputs": (str,),
    "worst": (float, int, type(None)),
    "unit": (str,),
    "seconds": (float, int),
    "passed": (bool, type(None)),
    "counterexample": (str, type(None)),
    "note": (str,),
}


def default_path() -> Path:
    """`verification.json` in the user's folder for caches: `~/.cache/bandtheory` on Linux, or what XDG_CACHE_HOME says."""
    if sys.platform == "win32":
        folder = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        folder = Path.home() / "Library" / "Caches"
    else:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return folder / "bandtheory" / "verification.json"


class Records:
    """The finished checks in one file, by key.

    Args:
        path: the file; its folder is made if there is none.
        warn: told in one sentence when the file is of another version, or damaged; it is then as if there were none.

    Raises:
        OSError: the file, or its folder, cannot be written.
        ValueError: the file is there and holds something else.
    """

    def __init__(self, path: Path, warn: Callable[[str], None]) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._warn = warn
        self._kept = self._read()
        self._write()

    def checks(self, key: str) -> dict[str, Check]:
        """The finished checks of a key, by name."""
        return dict(self._kept.get(key, {}))

    def forget(self, key: str) -> None:
        """Drop what is kept under a key."""
        self._kept.pop(key, None)

    def keep(self, key: str, check: Check) -> None:
        """Add a check and write the file."""
        self._kept.setdefault(key, {})[check.name] = check
        self._write()

    def _read(self) -> dict[str, dict[str, Check]]:
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return {}
        except UnicodeDecodeError:
            raise self._foreign() from None
        if text.strip() and FORMAT not in text:
            raise self._foreign()
        try:
            data = json.loads(text)
        except ValueError as error:
            return self._damaged(f"it is not JSON ({error})")
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            return self._damaged("it is not a record of verifications")
        if data.get("version") != _version():
            self._warn(f"{self.path} was written by {data.get('version')}, this is {_version()}: its checks are made again")
            return {}
        try:
            return {str(key): {str(check["name"]): _check(check) for check in checks} for key, checks in data["checks"].items()}
        except (KeyError, TypeError, AttributeError) as error:
            return self._damaged(f"a check in it cannot be read: {error}")

    def _foreign(self) -> ValueError:
        """A slip of the hand must not move somebody's work out of the way."""
        return ValueError(f"state file {self.path} holds something else than finished checks; name another one, or remove it")

    def _damaged(self, why: str) -> dict[str, dict[str, Check]]:
        """Not what was written here: nothing of it is used, and it is set aside rather than overwritten."""
        aside = self.path.with_name(self.path.name + ".damaged")
        self.path.replace(aside)
        self._warn(f"{self.path} is damaged and was ignored, now {aside.name}: {why}")
        return {}

    def _write(self) -> None:
        checks = {key: [asdict(check) for check in kept.values()] for key, kept in self._kept.items()}
        content = {"format": FORMAT, "version": _version(), "checks": checks}
        write_whole(self.path, json.dumps(content, ensure_ascii=False, indent=1).encode())


def _check(data: Any) -> Check:
    if not isinstance(data, dict) or set(data) != set(_TYPES):
        raise TypeError("fields other than those of a check")
    wrong = [name for name, types in _TYPES.items() if not isinstance(data[name], types)]
    if wrong or data["name"] not in check_names():
        raise TypeError(f"{wrong[0] if wrong else 'name'} = {data[wrong[0] if wrong else 'name']!r}")
    return Check(**data)


@lru_cache(maxsize=1)
def _version() -> str:
    """Version, a digest of the library's source text, and Python's version."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(path.read_bytes())
    return f"bandtheory {__version__} ({digest.hexdigest()[:12]}), Python {platform.python_version()}"
