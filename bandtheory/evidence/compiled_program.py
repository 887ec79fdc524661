"""The n-token program in cvxpy: canonicalised once per generator and n, and then solved again with new numbers (DPP).

    max objective·x   subject to   R = base + scale·x,   f(R_i) − s (R_i − 1) ≤ height_i t_i,   Σ t_i ≤ budget,
                                   mass·x = rest,   floor ≤ x ≤ ceiling

with `s` the slope of f at 1: the tilted generator is the same divergence, and small where R is close to 1. All numbers are
entries of one parameter θ. cvxpy's canonical form `min q·z subject to Az + b in a cone` is affine in θ, so that a solve costs
one sparse product and the solver's iterations; `unpack_results` leads back to x and the multipliers.
"""

from __future__ import annotations

import warnings
from functools import lru_cache
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bandtheory.divergence import FDivergence
from bandtheory.evidence.conic import Conic, ConvexUnavailable, conic_form
from bandtheory.evidence.enclosure import slope_at_one

Array = NDArray[np.float64]
_cp: Any = cp  # cvxpy's annotations do not list its atoms
VECTORS = ("base", "scale", "floor", "ceiling", "objective", "height", "mass")
NUMBERS = ("budget", "rest")
ACCEPT = {"accept_unknown": True}  # Clarabel hands over the point at which it makes no more progress, to be verified


class Point(NamedTuple):
    """What a solver returned: x, shape (n,), the multipliers of the radius and of the total, and its own status."""

    x: Array
    radius_multiplier: float
    total_multiplier: float
    status: str


class Program:
    """One canonicalised problem. The results of a solver come to lie in it: it serves one thread at a time."""

    def __init__(self, problem: Any, numbers: cp.Parameter, x: cp.Variable, multipliers: tuple[cp.Constraint, ...]) -> None:
        self.problem, self.numbers, self.x, self.multipliers = problem, numbers, x, multipliers
        self.forms: dict[str, _Canonical] = {}

    def solve(self, values: dict[str, Any], solver: str, options: dict[str, Any]) -> Point | str:
        """The solver's point for these values of `VECTORS` and `NUMBERS`, or why there is none."""
        rows = np.zeros((len(VECTORS) + 1, self.x.size))
        for row, name in zip(rows, VECTORS, strict=False):
            row[:] = values[name]
        rows[-1, : len(NUMBERS)] = [values[name] for name in NUMBERS]
        if not np.all(np.isfinite(rows)):
            return "not posed, its numbers are beyond float64"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "solution may be inaccurate": it is verified
            try:
                self._canonical(solver).solve(rows, options)
            except ConvexUnavailable:
                raise
            except (cp.SolverError, ArithmeticError, ValueError) as error:
                return f"failed, {error}"
            status, x = str(self.problem.status), self.x.value
            if x is None or not np.all(np.isfinite(x)):
                return f"{status}, no point"
            radius, total = (float(np.asarray(part.dual_value).item()) for part in self.multipliers)
            return Point(np.array(x), radius, total, status)

    def _canonical(self, solver: str) -> _Canonical:
        if solver not in self.forms:
            self.forms[solver] = _Canonical(self.problem, self.numbers, solver)
        return self.forms[solver]


class _Canonical:
    """The problem as one solver wants it: `Az + b`, with the nonzeros of `[A b]` and `q` as sparse matrices times (θ, 1)."""

    def __init__(self, problem: Any, numbers: cp.Parameter, solver: str) -> None:
        numbers.value = np.ones(numbers.shape)
        self.problem = problem
        self.data, self.chain, self.inverse = problem.get_problem_data(solver, enforce_dpp=True, solver_opts=ACCEPT)
        program = self.data["param_prob"]
        if program.P is not None or program.param_id_to_col.get(numbers.id) != 0:
            raise ConvexUnavailable("conic must be a function of the ratios alone, without parameters of its own")
        self.size = program.x.size
        self.objective = sp.csr_array(program.q)[:-1]
        tensor = sp.coo_array(program.A)  # one row for each entry of [A b], column by column; one column for each of (θ, 1)
        entries, row = np.unique(tensor.coords[0], return_inverse=True)
        self.tensor = sp.csr_array((tensor.data, (row, tensor.coords[1])), shape=(entries.size, tensor.shape[1]))
        height = tensor.shape[0] // (self.size + 1)
        self.starts = np.searchsorted(entries, height * np.arange(self.size + 1)).astype(np.int32)
        self.rows, self.height = (entries % height).astype(np.int32), height

    def data_at(self, rows: Array) -> dict[str, Any]:
        """What `Problem.get_problem_data` returns for these numbers, in a tenth of the time."""
        theta = np.append(rows.ravel(order="F"), 1.0)
        entries = self.tensor @ theta
        inside, b = self.starts[-1], np.zeros(self.height)
        b[self.rows[inside:]] = entries[inside:]
        # cvxpy's solvers take −A
        A = sp.csc_array((-entries[:inside], self.rows[:inside], self.starts), shape=(self.height, self.size))
        return {**self.data, "c": self.objective @ theta, "A": A, "b": b}

    def solve(self, rows: Array, options: dict[str, Any]) -> None:
        """Leave the solver's answer in the problem."""
        data = self.data_at(rows)
        # A warm start would keep Clarabel's equilibration of the previous data, and stall on this.
        found = self.chain.solve_via_data(self.problem, data, warm_start=False, verbose=False, solver_opts=options)
        self.problem.unpack_results(found, self.chain, self.inverse)


@lru_cache(maxsize=64)
def compiled(divergence: FDivergence, n: int, conic: Conic | None, boxed: bool = True) -> Program:
    """The program of a generator for n tokens, made at the first call; not `boxed` without floor and ceiling.

    Without them it is solved sooner. A form that has values at negative ratios keeps them nevertheless.

    Raises:
        ConvexUnavailable: the generator has no disciplined convex form, or `conic` is not one.
    """
    form = conic or conic_form(divergence)
    if not boxed and _reaches_below_zero(form):
        return compiled(divergence, n, conic)
    x, t = cp.Variable(n), cp.Variable(n)
    numbers = cp.Parameter((len(VECTORS) + 1, n))
    given: dict[str, Any] = {name: numbers[i] for i, name in enumerate(VECTORS)}
    given |= {name: numbers[len(VECTORS), i] for i, name in enumerate(NUMBERS)}
    ratios = given["base"] + _cp.multiply(given["scale"], x)
    value = form(ratios)
    if not isinstance(value, cp.Expression) or value.shape != (n,) or not value.is_convex():
        raise ConvexUnavailable(f"conic must return a convex cvxpy expression of shape ({n},), got {value}")
    epigraph = value - slope_at_one(divergence) * (ratios - 1) <= _cp.multiply(given["height"], t)
    radius = _cp.sum(t) <= given["budget"]
    total = given["mass"] @ x == given["rest"]
    box = [x >= given["floor"], x <= given["ceiling"]] if boxed else []
    problem = cp.Problem(cp.Maximize(given["objective"] @ x), [epigraph, radius, total, *box])
    return Program(problem, numbers, x, (radius, total))


def _reaches_below_zero(form: Conic) -> bool:
    """Whether a conic form has a value at a negative ratio, so that only a constraint keeps ratios from there."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        value = getattr(form(cp.Variable(2, value=np.array([-1e-3, 1.0]))), "value", None)
    return value is None or bool(np.isfinite(np.atleast_1d(value)[0]))
