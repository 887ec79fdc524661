"""What torch.compile is told about functions that it shall not trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


def constant(function: Function) -> Function:
    """Mark a function of rules, dtypes and devices: it is called while tracing, and its result is part of the graph.

    This is `torch.compiler.assume_constant_result` without the import of the compiler, which would double the time that
    importing this package takes.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function
