"""The table of a rule's bounds on every float32, read by the definition and compared with the float64 bounds."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from bandtheory.catalogue import examples
from bandtheory.float_table import INFINITE, ROOTS, SHIFTS, FloatTable, float_table
from bandtheory.half_table import half_table, to_half
from bandtheory.rules import parse
from bandtheory.tabulation import QUANTITIES

RULES = [
    *(f"band:{name}:0.05" for name in ("kl", "reverse_kl", "tv", "squared_hellinger", "jensen_shannon", "vajda:3", "renyi:3")),
    "band:kl:0.05:10",
    "band:hockey_stick:1.2:0.05",
    "relaxed",
    "dcpo",
    "clip",
    "none",
]


def read(table: FloatTable, logp: np.ndarray) -> np.ndarray:
    """Both bounds of float32 log-probabilities ≤ 0, shape (2, N): nodes by the module's definition, the cubic in float32."""
    bits = np.abs(logp).view(np.int32)
    node, shift = table.nodes[bits >> SHIFTS[0]], np.full(bits.shape, SHIFTS[0])
    for whole, part in itertools.pairwise(SHIFTS):
        refined = node < 0
        node = np.where(refined, table.nodes[np.where(refined, ~node + ((bits >> part) % (1 << (whole - part))), 0)], node)
        shift = np.where(refined, part, shift)
    t = ((bits % (1 << shift)) * 2.0 ** (1 - shift) - 1).astype(np.float32)
    c = table.rows[node].reshape(-1, 2, 4).transpose(1, 2, 0)
    return c[:, 0] + t * (c[:, 1] + t * (c[:, 2] + t * c[:, 3]))


def expected(rule: str, logp: np.ndarray, quantity: str) -> np.ndarray:
    """Both bounds in float64, shape (2, N)."""
    bounds = np.stack([np.broadcast_to(bound, logp.shape) for bound in parse(rule).log_bounds(logp.astype(np.float64))])
    with np.errstate(over="ignore"):
        return bounds if quantity == "log_ratio" else np.exp(bounds)


def units(ours: np.ndarray, exact: np.ndarray) -> float:
    """Largest distance in units in the last place of float32; infinite where one is infinite or NaN and the other is not."""
    rounded = exact.astype(np.float32)
    same = ours == rounded
    with np.errstate(invalid="ignore"):
        distance = np.abs(ours.astype(np.float64) - exact) / np.spacing(np.abs(rounded)).astype(np.float64)
    return float(np.where(same, 0.0, np.where(np.isfinite(distance), distance, np.inf)).max(initial=0.0))


@pytest.mark.parametrize("quantity", QUANTITIES)
@pytest.mark.parametrize("rule", RULES)
def test_every_part_of_the_range(rule: str, quantity: str) -> None:
    """Random patterns over all octaves, dense ones where probabilities are, and dense ones in refined stretches."""
    rng = np.random.default_rng(0)
    table = float_table(rule, quantity)
    assert table is not None
    patterns = [
        rng.integers(0, INFINITE, 20_000),
        np.abs(-(10.0 ** rng.uniform(-6, 2, 20_000)).astype(np.float32)).view(np.int32),
    ]
    refined = np.flatnonzero(table.nodes[: INFINITE >> SHIFTS[0]] < 0)
    for stretch in rng.permutation(refined)[:20]:
        patterns.append((stretch << SHIFTS[0]) + rng.integers(0, 1 << SHIFTS[0], 500))
    logp = -np.concatenate(patterns).astype(np.int32).view(np.float32)
    with np.errstate(over="ignore"):
        for ours, exact in zip(read(table, logp), expected(rule, logp, quantity), strict=True):
            denormal = (quantity == "ratio") & (
                exact < 2.0**-126
            )  # there every term of a cubic is rounded by a unit of the sum
            assert units(ours[~denormal], exact[~denormal]) <= (1.5 if quantity == "log_ratio" else 1.7)
            assert units(ours[denormal], exact[denormal]) <= 4


@pytest.mark.parametrize("quantity", QUANTITIES)
@pytest.mark.parametrize("rule", ["band:kl:0.05", "band:tv:0.05:10", "dcpo", "clip"])
def test_the_ends_of_the_range(rule: str, quantity: str) -> None:
    """0, the smallest and largest floats and infinity are exact; every NaN stays NaN."""
    table = float_table(rule, quantity)
    assert table is not None
    logp = -np.array([0, 1, 2, 0x007FFFFF, 0x00800000, INFINITE - 1, INFINITE], dtype=np.int32).view(np.float32)
    with np.errstate(over="ignore"):
        for ours, exact in zip(read(table, logp), expected(rule, logp, quantity), strict=True):
            assert units(ours, exact) <= 1.5
    nan = np.array([INFINITE + 1, 0x7F80FFFF, 0x7FC00000, 0x7FFFFFFF], dtype=np.int32).view(np.float32)
    assert np.isnan(read(table, nan)).all()


@pytest.mark.parametrize("quantity", QUANTITIES)
@pytest.mark.parametrize("name", examples())
def test_tables_stay_small(name: str, quantity: str) -> None:
    """1 to 2 MB, most of it never touched: what a training run reads fits a first-level cache."""
    table = float_table(f"band:{name}:0.05", quantity)
    assert table is not None
    assert table.nodes.dtype == np.int32
    assert table.rows.dtype == np.float32
    assert ROOTS <= len(table.nodes) < 2 * ROOTS
    assert len(table.rows) < 2 * ROOTS
    assert table.nodes.max() < len(table.rows)
    assert (~table.nodes[table.nodes < 0]).max() < len(table.nodes)


@pytest.mark.parametrize("rule", ["band:exp(u-1)-u:0.05", "band:hockey_stick:1.2:0"])
def test_bounds_that_are_solved_token_by_token_have_no_table(rule: str) -> None:
    for quantity in QUANTITIES:
        assert float_table(rule, quantity) is None
        assert half_table(rule, "bfloat16", quantity) is None


@pytest.mark.parametrize(
    ("dtype", "logp", "quantity", "bound"),
    [
        (
            "bfloat16",
            0xC000,
            "log_ratio",
            0x3EA1,
        ),  # −2 → tv at δ = 0.05: log(1 + 0.05 e²) = 0.31444…, nearest bfloat16 0.314453125
        ("bfloat16", 0xFF80, "log_ratio", 0x7F80),  # −∞ → ∞
        ("float16", 0xC000, "log_ratio", 0x3508),  # 0.31444… in float16 is 0.314453125
        ("float16", 0xFC00, "log_ratio", 0x7C00),
        ("bfloat16", 0xC000, "ratio", 0x3FAF),  # 1 + 0.05 e² = 1.36945…, nearest bfloat16 1.3671875 = 1 + 47/128
        ("bfloat16", 0xFF80, "ratio", 0x7F80),
        ("float16", 0xC000, "ratio", 0x3D7A),  # nearest float16 1.369140625 = 1 + 378/1024
        ("float16", 0xFC00, "ratio", 0x7C00),
    ],
)
def test_half_tables_by_hand(dtype: str, logp: int, quantity: str, bound: int) -> None:
    table = half_table("band:tv:0.05", dtype, quantity)
    assert table is not None
    assert table.shape == (65536, 2)
    assert table[logp, 1] == bound


def test_half_tables_count_positive_as_zero_and_keep_nan() -> None:
    table = half_table("band:kl:0.05", "bfloat16")
    assert table is not None
    assert (table[0x0001:0x7F81] == table[0x8000]).all()
    for nan in (0x7F81, 0x7FFF, 0xFF81, 0xFFFF):
        assert ((table[nan] & 0x7FFF) > 0x7F80).all()


def test_a_double_next_to_a_tie_of_bfloat16_is_rounded_once() -> None:
    """1 + 2⁻⁸ + 2⁻⁴⁰ is above the tie between 1 and 1 + 2⁻⁷; rounded to float32 first, it falls on the tie and then to even."""
    values = np.array(
        [1 + 2.0**-8, 1 + 2.0**-8 + 2.0**-40, 1 + 3 * 2.0**-8, 1 + 3 * 2.0**-8 - 2.0**-40, -(1 + 2.0**-8 + 2.0**-40)]
    )
    assert to_half(values, "bfloat16").tolist() == [0x3F80, 0x3F81, 0x3F82, 0x3F81, 0xBF81]


def test_unknown_half_type() -> None:
    with pytest.raises(ValueError, match="dtype: 'float8' is none of 'float16', 'bfloat16'"):
        half_table("clip", "float8")


@pytest.mark.parametrize("table", [float_table, lambda rule, quantity: half_table(rule, "float16", quantity)])
def test_unknown_quantity(table: Callable[[str, str], object]) -> None:
    with pytest.raises(ValueError, match="quantity: 'odds' is none of 'log_ratio', 'ratio'"):
        table("clip", "odds")


def test_the_ratios_of_a_clip_are_not_taken_from_logarithms() -> None:
    """1 + 2⁻⁸ is the tie between the bfloat16 numbers 1 and 1 + 2⁻⁷; exp(log1p(2⁻⁸)) need not be."""
    table = half_table(f"clip:{2.0**-9},{2.0**-8}", "bfloat16", "ratio")
    assert table is not None
    assert table[0xBF80].tolist() == [0x3F80, 0x3F80]  # 1 − 2⁻⁹ is the tie between 1 − 2⁻⁸ and 1
