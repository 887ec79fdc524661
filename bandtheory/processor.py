"""How many processes may run at once."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """Cores this process may run on, which a container can hold below those of the machine."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
