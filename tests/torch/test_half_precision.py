"""All float16 and bfloat16 log-probabilities, for every catalogue divergence: log-bounds and ratios are correctly rounded."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import bandtheory as bt
from bandtheory.catalogue import examples
from bandtheory.torch import bounds, log_bounds

DELTAS = (0.001, 0.01, 0.05, 0.2, 1.0)
CERTIFIED = 6  # inputs of each case at which the float64 bounds are certified


def all_inputs(dtype: torch.dtype) -> torch.Tensor:
    """All finite values in (−∞, 0] of a 16-bit type, in both orders of the sign of zero."""
    values = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    return values[torch.isfinite(values) & (values <= 0)]


def neighbours(values: torch.Tensor) -> list[np.ndarray]:
    """The representable numbers next to each value, towards −∞ and towards ∞."""
    return [torch.nextafter(values, torch.full_like(values, end)).double().numpy() for end in (-torch.inf, torch.inf)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", examples())
def test_all_inputs(name: str, dtype: torch.dtype) -> None:
    logp = all_inputs(dtype)
    exact_logp = logp.double().numpy()
    # what rounds to infinity is at least half a unit beyond the largest number
    overflow = torch.finfo(dtype).max * (1 + torch.finfo(dtype).eps / 4)
    for delta in DELTAS:
        logs = bt.log_bounds(logp=np.minimum(exact_logp, 0.0), divergence=name, delta=delta)
        with np.errstate(over="ignore"):
            ratios = [np.exp(bound) for bound in logs]
        for function, exact in ((log_bounds, logs), (bounds, ratios)):
            for ours, bound in zip(function(logp, f"band:{name}:{delta}"), exact, strict=True):
                value, finite = ours.double().numpy(), np.abs(bound) < overflow
                np.testing.assert_array_equal(value[~finite], np.copysign(np.inf, bound[~finite]))
                error = np.abs(value[finite] - bound[finite])
                for neighbour in neighbours(ours):
                    assert np.all(error <= np.abs(neighbour[finite] - bound[finite]))


@pytest.mark.parametrize("name", examples())
def test_the_float64_bounds_behind_them_are_certified(name: str) -> None:
    rng = np.random.default_rng(0)
    for delta in DELTAS:
        logp = -(10.0 ** rng.uniform(-3, 1.5, CERTIFIED)).astype(np.float16).astype(np.float64)
        logs = bt.log_bounds(logp=logp, divergence=name, delta=delta)
        for side, log_bound in (("lower", logs.lower), ("upper", logs.upper)):
            assert bt.certify(logp, np.exp(log_bound), divergence=name, delta=delta, side=side).holds.all()
