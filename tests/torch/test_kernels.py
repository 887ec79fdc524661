"""The Triton kernels against the eager loss and a plain evaluation of the float table.

On a machine without a GPU they run under Triton's interpreter. Triton reads that switch when it is first imported, and other
tests must not meet it, so a process of its own runs this file once more; what it runs there is `TestKernels`.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from bandtheory.torch import TensorBounds, bounds, log_bounds, lookup, losses, policy_loss, surrogate

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TRITON = importlib.util.find_spec("triton") is not None
HERE = TRITON and (INTERPRETED or DEVICE == "cuda")
if HERE:
    from bandtheory.torch import kernels

needs_triton = pytest.mark.skipif(not TRITON, reason="Triton is not installed")
FLOATS = [torch.float32, torch.float16, torch.bfloat16]
HOSTILE = [math.nan, -math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-3, 1e-45, -1e-45, -1e-40, 1e38, -1e38, 200.0, -200.0]


# --- outside the interpreter -------------------------------------------------------------------------------------------------


if not HERE:

    @needs_triton
    def test_the_kernels_under_the_interpreter() -> None:
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", __file__, "-k", "TestKernels"]
        environment = {**os.environ, "TRITON_INTERPRET": "1"}
        environment.pop("PYTEST_XDIST_WORKER", None)
        finished = subprocess.run(
            command, env=environment, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=300, check=False
        )
        assert finished.returncode == 0, finished.stdout + finished.stderr

    @needs_triton
    def test_without_a_gpu_the_kernels_are_not_available() -> None:
        assert not surrogate.available("cpu")
        assert surrogate.available("cuda")


def test_a_missing_triton_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "bandtheory.torch.kernels", raising=False)
    monkeypatch.delattr("bandtheory.torch.kernels", raising=False)
    with pytest.raises(ImportError, match="needs Triton"):
        importlib.import_module("bandtheory.torch.kernels")
    assert not surrogate.available("cuda")


COMPILE = """
import sys
from pathlib import Path
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from bandtheory.torch import kernels

def assembly(kernel, pointers, scalars, **constants):
    names = kernel.arg_names
    signature = dict.fromkeys(constants, "constexpr") | {name: "*" + kind for name, kind in pointers.items()} | scalars
    signature = {name: signature[name] for name in names}
    aligned = {(names.index(name),): [["tt.divisibility", 16]] for name in [*pointers, *{"length", "size"} & {*scalars}]}
    source = ASTSource(kernel, signature, {(names.index(name),): value for name, value in constants.items()}, aligned)
    options = {"num_warps": 4, "enable_fp_fusion": True}
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm["ptx"]

table = {"nodes": "i32", "halves": "i64"}
folder = Path(sys.argv[1])
pointers = {"logp": "fp32"} | table | {"lower": "fp32", "upper": "fp32"}
(folder / "lookup").write_text(assembly(kernels._lookup_kernel, pointers, {"size": "i64"}, BLOCK=1024))
inputs = {"logp": "fp32", "old_logp": "bf16", "advantages": "fp32", "mask": "i1"}
pointers = inputs | table | {"coefficient": "fp32", "partials": "fp32"}
scalars = {"rows": "i32", "length": "i32", "blocks": "i32", "log_cap": "fp32"}
for rows in (1, 16):
    text = assembly(kernels._surrogate_kernel, pointers, scalars, PER_TOKEN=rows > 1, ROWS=rows, BLOCK=1024 // rows)
    (folder / f"surrogate {rows}").write_text(text)
"""


@needs_triton
@pytest.mark.skipif(sys.platform != "linux", reason="Triton compiles for CUDA on Linux only")
def test_the_kernels_compile_for_cuda_into_wide_accesses(tmp_path: Path) -> None:
    """No GPU is needed to compile for one. What is checked is what the speed rests on; the speed itself is a benchmark."""
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path / "cache"), "TRITON_INTERPRET": "0"}
    folder = Path(__file__).parents[2]
    (tmp_path / "compile.py").write_text(COMPILE)
    environment["PYTHONPATH"] = os.pathsep.join([str(folder), environment.get("PYTHONPATH", "")])
    command = [sys.executable, str(tmp_path / "compile.py"), str(tmp_path)]
    finished = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert finished.returncode == 0, finished.stderr
    for name, tokens_a_thread, words, stored in (("lookup", 8, 4, 4), ("surrogate 1", 8, 2, 2), ("surrogate 16", 8, 2, 2)):
        lines = (tmp_path / name).read_text().splitlines()
        loads = [line for line in lines if "ld.global" in line]
        gathers = [line for line in loads if "evict_last" in line]
        assert sum(".b64" in line for line in gathers) == tokens_a_thread * words
        assert sum(".b32" in line for line in gathers) == tokens_a_thread * len(SHIFTS)  # nodes
        assert sum(".v4" in line for line in loads) >= 2  # 128 bits of each input at a time
        assert sum("st.global" in line and ".v4.b32" in line for line in lines) == stored
        assert not any(line.split()[:1] == ["call"] or ".local." in line for line in lines)


# --- a table by the contract -------------------------------------------------------------------------------------------------


class Table(NamedTuple):
    nodes: Tensor
    rows: Tensor


SINGLE, CHILD, CELL = 1, 1 << 6, 1 << 16  # floats of a node at the last level, the one before, and the first
SHIFTS = (16, 11, 6, 0)
CELLS = 2**31 // CELL
INFINITY_BITS = 0x7F800000


def _values(bits: np.ndarray) -> np.ndarray:
    return bits.astype(np.int32).view(np.float32).astype(np.float64)


def _fit(first: np.ndarray, floats: int, bound: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Cubics in t of `bound(|logp|)` through four floats of each node that begins at `first`: rows of four coefficients."""
    if floats == SINGLE:
        return np.stack([bound(_values(first)), *np.zeros((3, first.size))], axis=1)
    steps = np.array([0.05, 0.3, 0.7, 0.95]) * floats
    powers = np.vander(steps.astype(np.int64) / floats * 2 - 1, 4, increasing=True)
    return np.linalg.solve(powers, bound(_values(first[:, None] + steps.astype(np.int64))).T).T


def build(lower: Callable[[np.ndarray], np.ndarray], upper: Callable[[np.ndarray], np.ndarray], kink: float) -> Table:
    """A table with one cell refined down to single floats around |logp| = kink, and one at infinity."""
    first = CELL * np.arange(INFINITY_BITS // CELL)
    rows = [*np.hstack([_fit(first, CELL, lower), _fit(first, CELL, upper)]), np.full(8, math.nan)]
    nodes = [min(cell, len(rows) - 1) for cell in range(CELLS)]
    for bits in (int(np.float32(kink).view(np.int32)), INFINITY_BITS):
        node = bits // CELL
        for whole, part in itertools.pairwise(SHIFTS):
            starts = (bits >> whole << whole) + (np.arange(1 << (whole - part)) << part)
            if bits == INFINITY_BITS:
                limits = np.zeros((starts.size, 8))
                limits[:, 0], limits[:, 4] = lower(np.array(math.inf)), upper(np.array(math.inf))
                new = np.where((np.arange(starts.size) == 0)[:, None], limits, math.nan)
            else:
                new = np.hstack([_fit(starts, 1 << part, lower), _fit(starts, 1 << part, upper)])
            nodes[node] = ~len(nodes)
            node = len(nodes) + ((bits >> part) & (starts.size - 1))
            nodes += [*range(len(rows), len(rows) + starts.size)]
            rows += [*new]
    table = Table(torch.tensor(np.array(nodes), dtype=torch.int32), torch.tensor(np.array(rows), dtype=torch.float32))
    return Table(*(part.to(DEVICE) for part in table))


TABLES = ("root", "clip", "none", "far", "up", "shut")


@functools.cache
def table(name: str) -> Table:
    if name == "root":
        return build(lambda x: -np.sqrt(x) - 0.05, lambda x: np.minimum(np.sqrt(x), math.log(10)), math.log(10) ** 2)
    lower, upper = {
        "clip": (-0.22, 0.25),
        "none": (-math.inf, math.inf),
        "far": (-50.0, -30.0),
        "up": (50.0, 60.0),
        "shut": (math.inf, -math.inf),
    }[name]
    nodes = torch.zeros(CELLS, dtype=torch.int32)
    nodes[INFINITY_BITS // CELL + 1 :] = 1  # NaN but for those next to infinity
    rows = torch.tensor([[lower, 0, 0, 0, upper, 0, 0, 0], [math.nan] * 8], dtype=torch.float32)
    return Table(nodes.to(DEVICE), rows.to(DEVICE))


def _place(bits: int, shift: int) -> float:
    return (bits & ((1 << shift) - 1)) * 2.0 ** (1 - shift) - 1


def evaluate(logp: np.ndarray, name: str) -> list[np.ndarray]:
    """The contract, token by token and in float64."""
    nodes, rows = (part.cpu().numpy() for part in table(name))
    result = []
    for value in logp.ravel().astype(np.float32):
        bits = 0 if value > 0 else int(value.view(np.int32)) & 0x7FFFFFFF
        row, t = nodes[bits >> SHIFTS[0]], _place(bits, SHIFTS[0])
        for whole, part in itertools.pairwise(SHIFTS):
            if row < 0:
                row, t = nodes[~row + ((bits >> part) & ((1 << (whole - part)) - 1))], _place(bits, part)
        c = rows[row].astype(np.float64)
        result.append([c[k] + t * (c[k + 1] + t * (c[k + 2] + t * c[k + 3])) for k in (0, 4)])
    return [np.array(side).reshape(logp.shape) for side in np.array(result).reshape(-1, 2).T]


# --- batches -----------------------------------------------------------------------------------------------------------------


class Batch(NamedTuple):
    logp: Tensor
    old_logp: Tensor
    advantages: Tensor
    mask: Tensor


def batch(shape: tuple[int, int], *, seed: int = 0, hostile: float = 0.0, per_row: bool = False) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    old_logp = -9.0 * torch.rand(shape, generator=generator)
    logp = old_logp + 0.7 * torch.randn(shape, generator=generator)
    advantages = torch.randn((shape[0], 1) if per_row else shape, generator=generator)
    mask = torch.rand(shape, generator=generator) < 0.7
    parts = [logp, old_logp, advantages]
    for number, part in enumerate(parts):
        garbage = torch.tensor(HOSTILE)[torch.randint(len(HOSTILE), part.shape, generator=generator)]
        parts[number] = torch.where(torch.rand(part.shape, generator=generator) < hostile, garbage, part)
    return Batch(*(part.to(DEVICE) for part in (*parts, mask)))


def fused(data: Batch, name: str, log_cap: float = math.inf) -> tuple[surrogate.SurrogateSums, Tensor]:
    logp = data.logp.detach().clone().requires_grad_()
    sums = surrogate.surrogate_sums(logp, *data[1:], name, log_cap)
    sums.row_loss.sum().backward()
    return sums, logp.grad


def eager(data: Batch, name: str, dual_clip: float | None = None) -> tuple[Tensor, losses.ClipStatistics, Tensor]:
    """Loss by row, statistics and gradient of the sum, from `policy_loss` with the bounds written out."""
    logp = data.logp.detach().clone().requires_grad_()
    bounds = TensorBounds(*kernels.lookup(data.old_logp.float(), *table(name)))
    options = {"dual_clip": dual_clip, "aggregation": "seq-mean-token-sum"}
    advantages = data.advantages.expand(logp.shape)
    _, statistics = policy_loss(logp, data.old_logp, advantages, data.mask, rule=bounds, **options)
    rows = []
    for row in range(logp.shape[0]):
        inputs = (part[row] for part in (logp, data.old_logp, advantages, data.mask))
        rows.append(policy_loss(*inputs, rule=TensorBounds(*(bound[row] for bound in bounds)), **options)[0])
    torch.stack(rows).sum().backward()
    return torch.stack(rows).detach(), statistics, logp.grad


def assert_same(data: Batch, name: str, dual_clip: float | None = None) -> None:
    sums, gradient = fused(data, name, math.inf if dual_clip is None else math.log(dual_clip))
    row_loss, statistics, expected = eager(data, name, dual_clip)
    assert gradient.dtype == data.logp.dtype
    assert torch.equal(gradient == 0, expected == 0)
    precision = max(2e-6, 2 * torch.finfo(data.logp.dtype).eps if data.logp.dtype != torch.float32 else 0.0)
    torch.testing.assert_close(gradient, expected, rtol=precision, atol=0.0, equal_nan=True)
    scale = torch.nan_to_num(expected.float(), posinf=0.0, neginf=0.0).abs().sum().item()
    torch.testing.assert_close(sums.row_loss.detach(), row_loss, rtol=2e-6, atol=2e-6 * scale, equal_nan=True)

    assert torch.equal(sums.row_tokens, (data.mask != 0).sum(dim=1).float())
    divisor = sums.tokens.clamp(min=1)
    assert torch.equal(sums.tokens, statistics.tokens)
    for count in ("clipped_up", "clipped_down", "dual_clipped", "saturated"):
        assert torch.equal(getattr(sums, count) / divisor, getattr(statistics, count)), count
    values = torch.stack([1 + sums.excess / divisor, sums.log_ratio_max.exp(), sums.approximate_kl / divisor])
    against = torch.stack([statistics.ratio_mean, statistics.ratio_max, statistics.approximate_kl])
    torch.testing.assert_close(values, against, rtol=4e-6, atol=1e-6, equal_nan=True)


def units(value: Tensor, exact: np.ndarray) -> float:
    """Largest distance in units in the last place of float32."""
    return float((np.abs(value.cpu().double().numpy() - exact) / np.spacing(np.abs(exact).astype(np.float32))).max())


# --- the kernels -------------------------------------------------------------------------------------------------------------


@needs_triton
@pytest.mark.filterwarnings("ignore:All-NaN slice encountered:RuntimeWarning")  # the interpreter's maximum, by numpy
class TestKernels:
    __test__ = HERE

    @pytest.fixture(autouse=True)
    def quiet(self) -> Iterator[None]:
        """The interpreter computes in numpy, which warns where a GPU gives NaN or infinity."""
        with np.errstate(all="ignore"):
            yield

    @pytest.fixture(autouse=True)
    def tables(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Rules are the names of the tables built here."""
        monkeypatch.setattr(surrogate, "table_on", lambda rule, device: table(rule) if rule in TABLES else None)

    # --- the table

    @pytest.mark.parametrize("name", ["root", "clip", "none"])
    def test_lookup(self, name: str) -> None:
        kink = np.float32(-(math.log(10) ** 2))
        around = (np.arange(-700, 700, 9) + kink.view(np.int32)).astype(np.int32).view(np.float32)
        cell = -np.geomspace(5.2, 5.4, 100).astype(np.float32)
        everywhere = np.arange(1, 0x7F800000, 9_999_991, dtype=np.int32).view(np.float32)
        nan_bits = np.array([0x7F800001, 0x7FC00000, 0x7FFFFFFF, -0x7FFFFF, -1, -0x400000], dtype=np.int32).view(np.float32)
        logp = np.concatenate([around, cell, everywhere, -everywhere, np.array(HOSTILE, dtype=np.float32), nan_bits])
        for ours, exact in zip(
            kernels.lookup(torch.tensor(logp, device=DEVICE), *table(name)), evaluate(logp, name), strict=True
        ):
            np.testing.assert_allclose(ours.cpu().numpy(), exact, rtol=3e-7, atol=1e-25)

    def test_the_refined_nodes_are_met(self) -> None:
        """The test before this one would prove little if no token were refined."""
        nodes = table("root").nodes.cpu().numpy()
        bits = int(np.float32(math.log(10) ** 2).view(np.int32))
        node, signs = nodes[bits >> SHIFTS[0]], []
        for whole, part in itertools.pairwise(SHIFTS):
            signs.append(node < 0)
            node = nodes[~node + ((bits >> part) & ((1 << (whole - part)) - 1))]
        assert signs == [True, True, True]
        assert node >= 0

    @pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 5), (2, 1025), (2, 0, 3)], ids=str)
    def test_lookup_of_any_shape(self, shape: tuple[int, ...]) -> None:
        logp = -torch.rand(shape, generator=torch.Generator().manual_seed(1)).to(DEVICE)
        lower, upper = kernels.lookup(logp, *table("root"))
        assert lower.shape == upper.shape == shape
        torch.testing.assert_close(upper, (-logp).sqrt(), rtol=1e-5, atol=0.0)
        transposed = kernels.lookup(logp.transpose(0, -1), *table("root"))[0] if shape else lower
        assert torch.equal(transposed, lower.transpose(0, -1) if shape else lower)

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
    def test_lookup_of_half_dtypes_on_every_pattern(self, dtype: torch.dtype) -> None:
        generator = torch.Generator().manual_seed(2)
        entries = torch.randint(-(2**15), 2**15, (65536, 2), generator=generator, dtype=torch.int16).to(DEVICE)
        patterns = torch.arange(-(2**15), 2**15, dtype=torch.int16).roll(77).to(DEVICE)
        for entry_dtype in (torch.int16, torch.uint16):
            bounds = kernels.lookup_half(patterns.view(dtype).reshape(2, -1), entries.view(entry_dtype))
            expected = entries[patterns.to(torch.int64) & 0xFFFF]
            for side, bound in enumerate(bounds):
                assert bound.dtype == dtype
                assert bound.shape == (2, 32768)
                assert torch.equal(bound.view(torch.int16).ravel(), expected[:, side])

    @pytest.mark.parametrize("dtype", FLOATS, ids=str)
    def test_ratio_bounds_come_from_the_kernels(self, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
        """Every level of the table: large and denormal ratios, 0 and infinite ones."""
        generator = torch.Generator().manual_seed(3)
        logp = torch.cat([-100 * torch.rand(3000, generator=generator), -7.3 - 0.4 * torch.rand(3000, generator=generator)])
        logp = torch.cat([logp, torch.tensor(HOSTILE)]).to(dtype).to(DEVICE)
        ours = bounds(logp, "band:kl:0.05")
        monkeypatch.setattr("bandtheory.torch.kernels.available", lambda device: False)
        for side, eager in zip(ours, bounds(logp, "band:kl:0.05"), strict=True):
            if dtype == torch.float32:
                torch.testing.assert_close(side, eager, rtol=2.0**-22, atol=4 * 2.0**-149, equal_nan=True)
            else:
                torch.testing.assert_close(side, eager, rtol=0, atol=0, equal_nan=True)

    # --- exponentials

    def test_the_exponential_is_accurate(self) -> None:
        x = np.concatenate([np.linspace(-20, 20, 20001), np.geomspace(1e-38, 1, 500), -np.geomspace(1e-38, 1, 500)])
        logp = torch.tensor(x, dtype=torch.float32, device=DEVICE)[None]
        data = Batch(logp, torch.zeros_like(logp), -torch.ones_like(logp), torch.ones_like(logp))
        assert units(fused(data, "none")[1][0], np.exp(logp[0].cpu().double().numpy())) <= 2

    def test_ratio_minus_one_keeps_its_digits(self) -> None:
        x = np.concatenate([np.linspace(-20, 20, 4001), np.geomspace(1e-30, 1, 500), -np.geomspace(1e-30, 1, 500)])
        logp = torch.tensor(x, dtype=torch.float32, device=DEVICE)[:, None]
        data = Batch(logp, torch.zeros_like(logp), torch.ones_like(logp), torch.ones_like(logp))
        _, partials = kernels.surrogate(*data, *table("none"), math.inf)
        partials, exact = partials.cpu(), np.longdouble(logp[:, 0].cpu().numpy())
        excess = np.expm1(exact)
        assert units(partials[:, 0, 6], excess.astype(np.float64)) <= 2
        kl = np.where(np.abs(exact) < 1e-3, exact**2 / 2 * (1 + exact / 3 * (1 + exact / 4)), excess - exact).astype(np.float64)
        normal = kl > 1e-37
        assert units(partials[normal, 0, 8], kl[normal]) <= 6

    @pytest.mark.parametrize(
        ("name", "advantage", "log_ratio"),
        [("far", 1.0, -30.0), ("up", -1.0, 50.0), ("none", 1.0, -20.0), ("shut", 1.0, -math.inf), ("shut", -1.0, math.inf)],
        ids=str,
    )
    def test_the_loss_may_be_taken_beyond_the_limit(self, name: str, advantage: float, log_ratio: float) -> None:
        """Bounds on the wrong side of the ratio: the loss is taken at the bound, wherever it is."""
        one = torch.ones(1, 3, device=DEVICE)
        sums, gradient = fused(Batch(-25 * one, 0 * one, advantage * one, one), name)
        assert sums.row_loss.item() == pytest.approx(-3 * advantage * math.exp(log_ratio), rel=1e-6)
        assert gradient.tolist() == [[0.0] * 3]

    # --- the surrogate

    @pytest.mark.parametrize("name", ["root", "clip", "none"])
    @pytest.mark.parametrize(
        ("shape", "per_row"), [((1, 1), False), ((3, 5), True), ((7, 1000), False), ((2, 5000), True)], ids=str
    )
    def test_equals_the_eager_loss(self, shape: tuple[int, int], per_row: bool, name: str) -> None:
        assert_same(batch(shape, per_row=per_row), name, dual_clip=2.0 if per_row else None)

    @pytest.mark.parametrize("seed", range(3))
    @pytest.mark.parametrize("name", ["root", "clip", "none", "far", "up"])
    def test_equals_the_eager_loss_on_hostile_values(self, name: str, seed: int) -> None:
        """A fifth of the tokens hostile, and rows short enough for most of them to stay finite."""
        assert_same(batch((40, 6), seed=seed, hostile=0.2), name, dual_clip=3.0 if seed else None)
        assert_same(batch((12, 70), seed=seed, hostile=0.01), name)

    @pytest.mark.parametrize(("logp", "old_logp"), [*itertools.product(FLOATS, FLOATS)], ids=str)
    def test_half_dtypes(self, logp: torch.dtype, old_logp: torch.dtype) -> None:
        data = batch((3, 65), seed=4)
        assert_same(data._replace(logp=data.logp.to(logp), old_logp=data.old_logp.to(old_logp)), "root", dual_clip=2.0)

    @pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int8], ids=str)
    def test_advantages_of_any_dtype(self, dtype: torch.dtype) -> None:
        data = batch((3, 65), seed=5)
        assert_same(data._replace(advantages=(3 * data.advantages).to(dtype)), "root")

    @pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.float32, torch.bfloat16, torch.float64], ids=str)
    def test_masks_of_any_dtype(self, dtype: torch.dtype) -> None:
        data = batch((3, 65), seed=6)
        mask = data.mask.to(dtype)
        if dtype.is_floating_point:
            mask[0, :3] = torch.tensor([-0.0, math.nan, 1e-4])
        assert_same(data._replace(mask=mask), "root")

    @pytest.mark.parametrize("garbage", HOSTILE)
    def test_masked_values_are_never_looked_at(self, garbage: float) -> None:
        data = batch((3, 65), seed=7)
        dirty = [torch.where(data.mask, part, garbage) for part in data[:3]]
        for ours, expected in zip(fused(Batch(*dirty, data.mask), "root", 1.0), fused(data, "root", 1.0), strict=True):
            torch.testing.assert_close(ours, expected, rtol=0.0, atol=0.0)

    def test_nothing_valid(self) -> None:
        data = batch((3, 65), seed=8, hostile=0.5)
        sums, gradient = fused(data._replace(mask=torch.zeros_like(data.mask)), "root")
        assert sums.log_ratio_max.item() == -math.inf
        assert all((value == 0).all() for name, value in sums._asdict().items() if name != "log_ratio_max")
        assert torch.equal(gradient, torch.zeros_like(gradient))

    @pytest.mark.parametrize("shape", [(0, 4), (3, 0), (0, 0)], ids=str)
    def test_empty(self, shape: tuple[int, int]) -> None:
        sums, gradient = fused(batch(shape), "root")
        assert sums.row_loss.shape == sums.row_tokens.shape == shape[:1]
        assert gradient.shape == shape
        assert sums.tokens.item() == sums.row_loss.sum().item() == 0

    def test_a_row_full_of_one_outcome_is_counted_in_full(self) -> None:
        """1024 of a kind in one program is the most that a digit of the packed counts must hold."""
        one = torch.ones(3, 2048, device=DEVICE)
        shift = torch.tensor([[25.0], [-25.0], [25.0]], device=DEVICE)
        sign = torch.tensor([[1.0], [-1.0], [-1.0]], device=DEVICE)
        sums, _ = fused(Batch(-30 * one + shift, -30 * one, sign, one), "clip", 1.0)
        counts = [sums.tokens, sums.clipped_up, sums.clipped_down, sums.dual_clipped, sums.saturated]
        assert torch.stack(counts).tolist() == [6144.0, 2048.0, 2048.0, 2048.0, 6144.0]

    def test_a_ratio_on_the_dual_clip_keeps_its_gradient(self) -> None:
        one = torch.ones(1, 2, device=DEVICE)
        logp = torch.tensor([[1.0, math.nextafter(1.0, 2.0) + 2**-23]], device=DEVICE)
        sums, gradient = fused(Batch(logp, 0 * one, -one, one), "none", 1.0)
        assert gradient.tolist() == [[pytest.approx(math.e, rel=1e-6), 0.0]]
        assert sums.dual_clipped.item() == 1

    def test_layout_does_not_matter(self) -> None:
        data = batch((64, 33), seed=9, per_row=True)
        turned = Batch(*(part.T.contiguous().T for part in data))
        expanded = data._replace(advantages=data.advantages.expand(64, 33))
        written = data._replace(advantages=data.advantages.repeat(1, 33))
        results = [fused(variant, "root") for variant in (data, turned, expanded, written)]
        for sums, gradient in results[1:]:
            assert torch.equal(gradient, results[0][1])
            assert torch.equal(sums.row_loss, results[0][0].row_loss)

    # --- the operator

    def test_gradients_by_row_and_twice(self) -> None:
        data = batch((3, 65), seed=10)
        weights = torch.tensor([1.0, -2.0, 0.5], device=DEVICE)
        bounds = TensorBounds(*kernels.lookup(data.old_logp, *table("root")))
        results = []
        for rows in (
            lambda logp: surrogate.surrogate_sums(logp, *data[1:], "root", math.inf).row_loss,
            lambda logp: torch.stack(
                [
                    policy_loss(*row, rule=TensorBounds(*bound), aggregation="seq-mean-token-sum")[0]
                    for row, bound in zip(zip(logp, *data[1:], strict=True), zip(*bounds, strict=True), strict=True)
                ]
            ),
        ):
            logp = data.logp.clone().requires_grad_()
            (first,) = torch.autograd.grad((rows(logp) * weights).sum(), logp, create_graph=True)
            (second,) = torch.autograd.grad((first * torch.linspace(-1, 1, 65, device=DEVICE)).sum(), logp)
            results.append((first.detach(), second))
        torch.testing.assert_close(*results, rtol=1e-6, atol=1e-7)

    def test_gradients_flow_to_logp_alone(self) -> None:
        data = batch((3, 5))
        leaves = [part.clone().requires_grad_() for part in data[:3]]
        sums = surrogate.surrogate_sums(*leaves, data.mask, "root", math.inf)
        sums.row_loss.sum().backward()
        assert [leaf.grad is not None for leaf in leaves] == [True, False, False]
        assert [value.requires_grad for value in sums] == [True] + [False] * 9

    def test_compiles_into_one_graph(self) -> None:
        data = batch((3, 65), seed=11)

        def loss(logp: Tensor) -> tuple[Tensor, surrogate.SurrogateSums]:
            assert surrogate.available(logp.device)
            sums = surrogate.surrogate_sums(logp, *data[1:], "root", math.log(3))
            return sums.row_loss.sum() / sums.tokens, sums

        torch.compiler.reset()
        results = []
        for function in (torch.compile(loss, fullgraph=True, backend="aot_eager"), loss):
            logp = data.logp.bfloat16().requires_grad_()
            value, sums = function(logp)
            value.backward()
            results.append((value.detach(), logp.grad, [part.detach() for part in sums]))
        torch.testing.assert_close(*results, rtol=0.0, atol=0.0)

    @pytest.mark.parametrize("shape", [(3, 65), (2, 1025), (0, 3)], ids=str)
    def test_the_operator_is_well_formed(self, shape: tuple[int, int]) -> None:
        data = batch(shape, seed=12)
        inputs = (data.logp.requires_grad_(), *data[1:], "clip", math.inf)
        torch.library.opcheck(torch.ops.bandtheory.surrogate, inputs)

    @pytest.mark.parametrize("dtype", FLOATS, ids=str)
    @pytest.mark.parametrize("rule", ["band:tv:0.05", "dcpo", "clip"])
    def test_the_public_bounds_take_the_kernels(self, rule: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
        logp = torch.cat([torch.tensor(HOSTILE), -torch.rand(2000, generator=torch.Generator().manual_seed(3)) * 9]).to(dtype)
        ours = log_bounds(logp.to(DEVICE), rule)
        monkeypatch.setattr(kernels, "available", lambda device: False)
        for bound, eager_bound in zip(ours, log_bounds(logp, rule), strict=True):
            torch.testing.assert_close(
                bound.cpu(), eager_bound, rtol=3e-7 if dtype == torch.float32 else 0, atol=0, equal_nan=True
            )

    @pytest.mark.parametrize("aggregation", ["token-mean", "seq-mean-token-mean", "seq-mean-token-sum"])
    @pytest.mark.parametrize("shape", [(65,), (3, 65), (2, 3, 5)], ids=str)
    def test_the_loss_takes_the_kernel(self, shape: tuple[int, ...], aggregation: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(surrogate, "table_on", lookup.table_on)
        calls: list[int] = []
        launch = kernels.surrogate
        monkeypatch.setattr(kernels, "surrogate", lambda *given: calls.append(1) or launch(*given))
        data = batch(shape, seed=13)
        advantages = data.advantages[..., :1] if len(shape) > 1 else data.advantages
        results = []
        rule = "band:tv:0.05:10"
        bounds = TensorBounds(*lookup.look_up(data.old_logp, lookup.table_on(rule, data.logp.device)))
        for given in (rule, bounds):
            logp = data.logp.detach().clone().requires_grad_()
            loss, statistics = policy_loss(
                logp, data.old_logp, advantages, data.mask, rule=given, aggregation=aggregation, dual_clip=3.0
            )
            loss.backward()
            results.append((loss.detach(), logp.grad, torch.stack(statistics)))
        assert calls == [1]
        torch.testing.assert_close(*results, rtol=4e-6, atol=1e-6)

    # --- wrong usage

    @pytest.mark.parametrize(
        ("change", "error", "message"),
        [
            (
                {"logp": torch.ones(2, 3, dtype=torch.float64)},
                TypeError,
                r"logp: expected dtype torch.float32 or .* got torch.float64",
            ),
            ({"old_logp": torch.ones(2, 3, dtype=torch.int64)}, TypeError, r"old_logp: expected dtype .* got torch.int64"),
            ({"logp": torch.ones(3)}, ValueError, r"logp: expected shape \(B, T\), got \(3,\)"),
            ({"mask": torch.ones(3, 2)}, ValueError, r"mask: expected shape \(2, 3\), got \(3, 2\)"),
            ({"advantages": torch.ones(2)}, ValueError, r"advantages: expected shape \(2, 3\) or \(2, 1\), got \(2,\)"),
            ({"old_logp": torch.zeros(2, 3, device="meta")}, ValueError, r"old_logp: is on device meta, but logp is on"),
        ],
    )
    def test_wrong_usage_is_refused(self, change: dict[str, Tensor], error: type[Exception], message: str) -> None:
        ones = torch.ones(2, 3)
        arguments = {"logp": ones, "old_logp": ones, "advantages": ones, "mask": ones, **change}
        moved = {name: part if part.is_meta else part.to(DEVICE) for name, part in arguments.items()}
        with pytest.raises(error, match=message):
            surrogate.surrogate_sums(**moved, rule="clip", log_cap=math.inf)

    @pytest.mark.parametrize(
        ("change", "error", "message"),
        [
            ({"nodes": torch.zeros(9)}, TypeError, r"nodes: expected dtype torch.int32, got torch.float32"),
            ({"rows": torch.zeros(4, 4)}, ValueError, r"rows: expected a contiguous tensor of shape \(2, 8\), got \(4, 4\)"),
            ({"rows": torch.zeros(8, 2).T}, ValueError, r"rows: expected a contiguous tensor"),
            ({"rows": torch.zeros(2, 8, device="meta")}, ValueError, r"rows: is on device meta, but logp is on"),
        ],
    )
    def test_wrong_tables_are_refused(self, change: dict[str, Tensor], error: type[Exception], message: str) -> None:
        parts = {**table("clip")._asdict(), **change}
        moved = {name: part if part.is_meta else part.to(DEVICE) for name, part in parts.items()}
        with pytest.raises(error, match=message):
            kernels.lookup(torch.zeros(3, device=DEVICE), **moved)

    def test_a_rule_without_a_table_is_refused(self) -> None:
        with pytest.raises(ValueError, match="'wild' has no float table"):
            surrogate.surrogate_sums(*batch((2, 3)), "wild", math.inf)

    def test_wrong_lookups_are_refused(self) -> None:
        logp, short = torch.zeros(3, device=DEVICE), torch.zeros(9, 2, dtype=torch.int16, device=DEVICE)
        with pytest.raises(TypeError, match=r"logp: expected dtype torch.float32, got torch.float16"):
            kernels.lookup(logp.half(), *table("clip"))
        with pytest.raises(TypeError, match=r"logp: expected dtype torch.float16 or torch.bfloat16, got torch.float32"):
            kernels.lookup_half(logp, short)
        with pytest.raises(ValueError, match=r"table: expected a contiguous tensor of shape \(65536, 2\), got \(9, 2\)"):
            kernels.lookup_half(logp.half(), short)
