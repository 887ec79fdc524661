"""Divergences, bounds and conic forms that lie in a Python file of the user's: `path/to/file.py:name`.

Reading such a reference executes the file, once in each process, with its own folder first on the import path as
`python file.py` would have it. What it prints goes to standard error.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from bandtheory.divergence import FDivergence
from bandtheory.evidence.subject import Subject, subject

_REFERENCE = re.compile(r"(?P<path>.+\.py)(:(?P<name>\w*))?", re.DOTALL)


class SourceError(ValueError):
    """A reference to a Python file that leads nowhere; the message names the file, and what was found there."""


@dataclass(frozen=True)
class Target:
    """What is to be verified, in a form that another process can be told.

    Attributes:
        divergence: a name, an expression in u, `file.py:name`, or an FDivergence.
        bounds: `file.py:name` of a function `(logp, δ) ↦ (log_lower, log_upper)`, or None for the library's bounds.
        conic: `file.py:name` of a function from a cvxpy expression of ratios to a convex one, or None.
    """

    divergence: str | FDivergence
    bounds: str | None = None
    conic: str | None = None

    @property
    def files(self) -> tuple[str, ...]:
        """The Python files that `subject` executes, each once."""
        references = (self.divergence, self.bounds, self.conic)
        paths = [_parts(text)[0] for text in references if isinstance(text, str) and is_reference(text)]
        return tuple(dict.fromkeys(paths))

    def subject(self) -> Subject:
        """The divergence with the functions that belong to it.

        Raises:
            SourceError: a reference that leads nowhere.
            DivergenceError, ExpressionError: as `unchecked_divergence`.
        """
        given = self.divergence
        if isinstance(given, str) and is_reference(given):
            given = load(given, FDivergence, "an FDivergence")
        bounds, conic = (None if text is None else load(text, Callable, "a function") for text in (self.bounds, self.conic))
        return subject(given, bounds, conic=conic)

    def key(self, effort: str, seed: int) -> str:
        """Changes with the effort, the seed, the generator, its radius, and the files of the functions."""
        f = self.subject().divergence
        texts = [f.name, str(f.generator), str(f.f_radius), str(self.bounds), str(self.conic)]
        functions = [_parts(text)[0] for text in (self.bounds, self.conic) if text is not None]
        contents = [Path(path).expanduser().read_bytes() for path in functions]
        return f"{f.name}, {effort}, {seed}, {hashlib.sha256(repr((texts, contents)).encode()).hexdigest()}"


def is_reference(text: str) -> bool:
    """Whether a text means `file.py:name`, or a file alone: no name and no expression of a divergence ends like that."""
    return _REFERENCE.fullmatch(text.strip()) is not None


def load(reference: str, kind: Any, words: str) -> Any:
    """The object that `file.py:name` refers to.

    Args:
        reference: path and name, separated by a colon.
        kind: the accepted type, or `Callable`.
        words: the same for the message.

    Raises:
        SourceError: no such file, one that cannot be executed, no such name in it, or an object of another type.
    """
    path, name = _parts(reference)
    module = _executed(str(Path(path).expanduser().resolve()), path)
    there = {key: value for key, value in vars(module).items() if not key.startswith("_") and _is(value, kind)}
    if kind is Callable:
        there = {key: value for key, value in there.items() if getattr(value, "__module__", None) == module.__name__}
    has = f"it has {', '.join(there)}" if there else f"{words} is not in it"
    if not name:
        raise SourceError(f"{reference!r} does not say which object is meant, as in {path}:NAME; {has}")
    if not hasattr(module, name):
        raise SourceError(f"{path} has no {name!r}; {has}")
    value = getattr(module, name)
    if not _is(value, kind):
        raise SourceError(f"{path}:{name} is of type {type(value).__name__}, expected {words}; {has}")
    return value


def _is(value: Any, kind: Any) -> bool:
    return callable(value) if kind is Callable else isinstance(value, kind)


def _parts(reference: str) -> tuple[str, str]:
    match = _REFERENCE.fullmatch(reference.strip())
    if not match:
        raise SourceError(f"{reference!r} is not a reference to a Python file; accepted: path/to/file.py:name")
    return match["path"], match["name"] or ""


@lru_cache(maxsize=32)
def _executed(path: str, shown: str) -> types.ModuleType:
    """The module of a file: no bytecode is written beside it."""
    try:
        code = compile(Path(path).read_bytes(), path, "exec")
    except FileNotFoundError:
        raise SourceError(f"no such file: {shown}") from None
    except OSError as error:
        raise SourceError(f"{shown} cannot be read: {error.strerror}") from None
    except (SyntaxError, ValueError) as error:
        where = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
        raise SourceError(f"{shown} is not Python: {getattr(error, 'msg', error)}{where}") from None
    module = types.ModuleType(f"{Path(path).stem}_{hashlib.sha256(path.encode()).hexdigest()[:8]}")
    module.__file__ = path
    vars(module)["__loaded_from_path__"] = True
    sys.modules[module.__name__] = module  # dataclasses and pickle look there
    sys.path.insert(0, str(Path(path).parent))
    try:
        with contextlib.redirect_stdout(sys.stderr):
            exec(code, vars(module))  # the user's own file, as the documentation of this module says
    except (Exception, SystemExit) as error:
        del sys.modules[module.__name__]
        raise SourceError(f"{shown} cannot be executed: {type(error).__name__}: {error}{_line(error, path)}") from error
    finally:
        sys.path.remove(str(Path(path).parent))
    return module


def _line(error: BaseException, path: str) -> str:
    """The last line of the file that the error passed through."""
    numbers, trace = [], error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == path:
            numbers.append(trace.tb_lineno)
        trace = trace.tb_next
    return f" (line {numbers[-1]})" if numbers else ""
