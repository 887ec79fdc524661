"""mpmath at a number of digits, for one thread at a time: mpmath keeps its precision in one place for all threads."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

_ONE_AT_A_TIME = threading.RLock()


@contextlib.contextmanager
def digits(count: int) -> Iterator[None]:
    """mpmath computes with so many decimal digits here; another thread that wants some waits until this one is through."""
    import mpmath

    with _ONE_AT_A_TIME, mpmath.workdps(count):
        yield
