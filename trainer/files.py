"""Writing results so that a reader never finds half of them."""

from __future__ import annotations

import os
from pathlib import Path

from trainer.config import ConfigError


def check_writable(directory: Path) -> None:
    """Raise ConfigError where ``directory`` cannot be created or written, before hours of work and not after."""
    existing = directory.absolute()
    while not existing.exists():
        existing = existing.parent
    if not existing.is_dir():
        raise ConfigError(f"out: {directory} cannot be a directory, because {existing} is a file")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise ConfigError(f"out: {directory} cannot be written: no permission in {existing}")


def write_together(directory: Path, contents: dict[str, bytes]) -> list[Path]:
    """Write files under temporary names and rename them once all are complete; on an error none of them changes."""
    directory.mkdir(parents=True, exist_ok=True)
    staged = {directory / name: directory / f".{name}.{os.getpid()}.partial" for name in contents}
    try:
        for (path, temporary), data in zip(staged.items(), contents.values(), strict=True):
            temporary.write_bytes(data)
            if path.is_dir():
                raise IsADirectoryError(f"{path} is a directory")
        for path, temporary in staged.items():
            temporary.replace(path)
    finally:
        for temporary in staged.values():
            temporary.unlink(missing_ok=True)
    return list(staged)
