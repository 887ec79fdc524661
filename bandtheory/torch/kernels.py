"""Triton kernels: log-bounds from a float table, and the clipped surrogate in one pass over the tokens.

Each input is read once and each output written once, a table row comes in as 64-bit words, and nothing calls a library
function. Where memory alone is the limit, a token of `lookup` leaves an H200 time for about a hundred instructions and one of
`surrogate` for about the 150 that it takes. That is what the choices below are about.

With TRITON_INTERPRET=1 in the environment before triton is imported, the kernels run on the CPU, slowly, which is how they are
tested.
"""

# Triton has no type information, and its kernels are not typed as Python functions are.
# mypy: disable-error-code="import-untyped,no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from bandtheory.float_table import SHIFTS
from bandtheory.torch.surrogate import LOG_RATIO_LIMIT

try:
    import triton
    import triton.language as tl
except ModuleNotFoundError as error:
    raise ImportError(
        "bandtheory.torch.kernels needs Triton, which comes with PyTorch for CUDA on Linux: pip install triton"
    ) from error

PARTIALS = (
    "loss",
    "tokens",
    "clipped_up",
    "clipped_down",
    "dual_clipped",
    "saturated",
    "excess",
    "log_ratio_max",
    "approximate_kl",
)
"""The last dimension of the partial results of `surrogate`: all sums but `log_ratio_max`, which is a maximum."""

HALF_DTYPES = (torch.float16, torch.bfloat16)
_LOOKUP_BLOCK = 1024
_GRID = 65535  # what CUDA allows in the second and third dimension of a grid
PIECE = 1024
"""Tokens of a row that one program of `surrogate` takes, at most."""
_OPTIONS = {"num_warps": 4, "enable_fp_fusion": True}  # fused multiply-add is the default, of which Triton 3.9 warns
_LIMIT = tl.constexpr(LOG_RATIO_LIMIT)
# Of the levels of a float table but the last, single floats: how far a pattern is shifted to find the node, how many siblings
# the node has, and how far the pattern's last bits are shifted to become a mantissa.
_SHIFT_0, _SHIFT_1, _SHIFT_2 = (tl.constexpr(shift) for shift in SHIFTS[:3])
_WITHIN_1, _WITHIN_2, _WITHIN_3 = (tl.constexpr((1 << (a - b)) - 1) for a, b in itertools.pairwise(SHIFTS))
_LIFT_0, _LIFT_1, _LIFT_2 = (tl.constexpr(23 - shift) for shift in SHIFTS[:3])
_COLUMNS = tl.constexpr(len(PARTIALS))


# --- the table ---------------------------------------------------------------------------------------------------------------


@triton.jit
def _locate(logp, nodes):
    """Row of the table and t in [−1, 1) for each float32 `logp`.

    The table has a row for every bit pattern, so no load of it needs a mask, not even for garbage. Where no token of a warp is
    refined, the three masked loads fetch nothing.
    """
    capped = tl.minimum(logp, 0.0, propagate_nan=tl.PropagateNan.ALL)
    bits = capped.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    row = tl.load(nodes + (bits >> _SHIFT_0), eviction_policy="evict_last")
    # The low bits of the stretch that has the row, as a fraction: at the top of the mantissa of a float in [2, 4), exactly, and
    # without a conversion from int to float, which has a fraction of the throughput of logic and addition.
    fraction = bits << _LIFT_0
    refined = row < 0
    child = ~row + ((bits >> _SHIFT_1) & _WITHIN_1)
    row = tl.load(nodes + child, mask=refined, other=row, eviction_policy="evict_last")
    fraction = tl.where(refined, bits << _LIFT_1, fraction)
    refined = row < 0
    child = ~row + ((bits >> _SHIFT_2) & _WITHIN_2)
    row = tl.load(nodes + child, mask=refined, other=row, eviction_policy="evict_last")
    fraction = tl.where(refined, bits << _LIFT_2, fraction)
    # A single float: its cubic is constant, so the fraction does not matter.
    row = tl.load(nodes + (~row + (bits & _WITHIN_3)), mask=row < 0, other=row, eviction_policy="evict_last")
    return row, ((fraction & 0x7FFFFF) | 0x40000000).to(tl.float32, bitcast=True) - 3.0


@triton.jit
def _cubic(halves, index, t):
    """c0 + t(c1 + t(c2 + t·c3)), its coefficients being the 64-bit words `index` and `index + 1` of the table's rows.

    Two gathers of 64 bits, not four of 32: it is the number of gathers that counts. (As a tensor with an axis for the
    coefficients, they would come in 128 bits, and then go through shared memory to get into line with `t`.)
    """
    low = tl.load(halves + index, eviction_policy="evict_last")
    high = tl.load(halves + index + 1, eviction_policy="evict_last")
    c0, c1 = low.to(tl.int32).to(tl.float32, bitcast=True), (low >> 32).to(tl.int32).to(tl.float32, bitcast=True)
    c2, c3 = high.to(tl.int32).to(tl.float32, bitcast=True), (high >> 32).to(tl.int32).to(tl.float32, bitcast=True)
    return c0 + t * (c1 + t * (c2 + t * c3))


@triton.jit
def _lookup_kernel(logp, nodes, halves, lower, upper, size, BLOCK: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * BLOCK  # 64 bits for the program, 32 for its lanes
    lane = tl.arange(0, BLOCK)
    inside = lane < size - first
    value = tl.load(logp + first + lane, mask=inside, other=0.0, eviction_policy="evict_first")
    row, t = _locate(value, nodes)
    tl.store(lower + first + lane, _cubic(halves, row * 4, t), mask=inside, eviction_policy="evict_first")
    tl.store(upper + first + lane, _cubic(halves, row * 4 + 2, t), mask=inside, eviction_policy="evict_first")


@triton.jit
def _half_kernel(patterns, table, lower, upper, size, BLOCK: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * BLOCK
    lane = tl.arange(0, BLOCK)
    inside = lane < size - first
    pattern = tl.load(patterns + first + lane, mask=inside, other=0, eviction_policy="evict_first")
    both = tl.load(table + (pattern.to(tl.int32) & 0xFFFF), mask=inside, other=0, eviction_policy="evict_last")
    tl.store(lower + first + lane, both.to(tl.int16), mask=inside, eviction_policy="evict_first")
    tl.store(upper + first + lane, (both >> 16).to(tl.int16), mask=inside, eviction_policy="evict_first")


# --- exponentials ------------------------------------------------------------------------------------------------------------


@triton.jit
def _reduce(x):
    """x = n·log 2 + r with |r| ≤ 0.347: r, r²P(r) = expm1(r) − r, and an integer that is n in its low 9 bits."""
    shifted = x * 1.4426950408889634 + 12582912.0  # 1.5·2²³: the sum has no bits left for a fraction, so it rounds to n
    n = shifted - 12582912.0
    r = (x - n * 0.693359375) - n * -2.12194440e-4  # log 2 in two parts; n times the first has no rounding error
    # Minimax with 1/2 fixed, so that expm1(x) − x has all its digits near 0; error 3.9e-9 of e^r.
    tail = 0.16666533052921295 + r * (0.04166724160313606 + r * (0.008367558009922504 + r * 0.0013863713247701526))
    return r, r * r * (0.5 + r * tail), shifted.to(tl.int32, bitcast=True)


@triton.jit
def _exp(x):
    """e^x within 2 ulp for −87.3 ≤ x ≤ 89: 0 below 2e-38, infinite where a float is. NaN for NaN.

    (`tl.exp` is one multiplication and an approximate power of two: 10 ulp off at 20.)
    """
    r, tail, n = _reduce(x)
    power = ((n << 23) + 0x3F000000).to(tl.float32, bitcast=True)  # 2^(n−1): a float also for n = 128, and 0 for n = −126
    return (2.0 + 2.0 * (r + tail)) * power


@triton.jit
def _expm1(x):
    """expm1(x) within 2 ulp and expm1(x) − x ≥ 0 within 6, near 0 as well; for |x| ≤ 20 or NaN."""
    r, tail, n = _reduce(x)
    power = ((n << 23) + 0x3F800000).to(tl.float32, bitcast=True)
    excess = power * (r + tail) + (power - 1.0)
    return excess, tl.where(power == 1.0, tail, excess - x)


# --- the clipped surrogate ---------------------------------------------------------------------------------------------------


@triton.jit
def _frozen(clamped, positive, bound, log_cap):
    """The log-ratio of a clipped token's loss; minima and maxima hand on NaN, so that a NaN bound gives a NaN loss.

    Infinite bounds end where `_exp` is 0 or infinite, each side on the one side where it can be.
    """
    nan: tl.constexpr = tl.PropagateNan.ALL
    above = tl.maximum(tl.minimum(clamped, bound, propagate_nan=nan), -87.3, propagate_nan=nan)
    below = tl.minimum(tl.maximum(clamped, bound, propagate_nan=nan), tl.minimum(log_cap, 89.0), propagate_nan=nan)
    return tl.where(positive, above, below)


@triton.jit
def _tile(pointer, first, offset, inside):
    """A tile of an input that is read once, hence first to leave the caches: they belong to the table."""
    return tl.load(pointer + first + offset, mask=inside, other=0, eviction_policy="evict_first")


@triton.jit(do_not_specialize=["rows", "blocks"])
def _surrogate_kernel(
    logp,
    old_logp,
    advantages,
    mask,
    nodes,
    halves,
    coefficient,
    partials,
    rows,
    length,
    blocks,
    log_cap,
    PER_TOKEN: tl.constexpr,  # one advantage a token, or one a row
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A tile of ROWS × BLOCK tokens: short rows share a program, long ones are cut into `blocks` pieces."""
    nan: tl.constexpr = tl.PropagateNan.ALL
    block = tl.program_id(0)  # from three dimensions of the grid, since a division would cost two instructions a token
    first_row = (tl.program_id(1) + tl.program_id(2) * tl.num_programs(1)).to(tl.int64) * ROWS
    first = first_row * length + block * BLOCK  # 64 bits for the program, 32 for its lanes
    row, token = tl.arange(0, ROWS)[:, None], tl.arange(0, BLOCK)[None, :]
    offset = row * length + token
    left = tl.minimum(rows - first_row, ROWS).to(tl.int32)
    row_inside = row < left
    inside = row_inside & (token < length - block * BLOCK)

    new = _tile(logp, first, offset, inside).to(tl.float32)
    old = _tile(old_logp, first, offset, inside).to(tl.float32)
    chosen = _tile(mask, first, offset, inside)
    if chosen.dtype == tl.bfloat16:  # the interpreter compares its bits, of which −0 has one
        chosen = chosen.to(tl.float32)
    valid = inside & (chosen != 0)
    if PER_TOKEN:
        advantage = _tile(advantages, first, offset, inside).to(tl.float32)
    else:
        advantage = tl.load(advantages + first_row + row, mask=row_inside, other=0).to(tl.float32)
    # What is masked may be NaN or infinite: it is replaced in the log-ratio, counts on neither side, and its loss is dropped.
    x = tl.where(valid, new - old, 0.0)
    positive, negative = valid & (advantage > 0), valid & (advantage < 0)

    # Only one of the bounds can bind, so only its half of the row is fetched.
    index, t = _locate(old, nodes)
    bound = _cubic(halves, index * 4 + tl.where(positive, 2, 0), t)

    clamped = tl.minimum(tl.maximum(x, -_LIMIT, propagate_nan=nan), _LIMIT, propagate_nan=nan)
    frozen = _frozen(clamped, positive, bound, log_cap)
    loss = tl.where(valid, -advantage * _exp(frozen), 0.0)  # its own derivative where the gradient stays
    # A token that is NaN itself keeps its gradient, which is NaN then. One that is clipped where the bound is NaN has none.
    keeps = (frozen == x) | (x != x) | (advantage != advantage)
    tl.store(coefficient + first + offset, tl.where(keeps, loss, 0.0), mask=inside, eviction_policy="evict_first")

    excess, kl = _expm1(clamped)
    # Counts are the digits of integers to base 1025, as BLOCK ≤ 1024: two reductions instead of five.
    tokens = tl.where(valid, 1, 0) + tl.where(tl.abs(x) > _LIMIT, 1025, 0)
    up, down = positive & (clamped > bound), negative & (clamped < bound)
    clipped = tl.where(up, 1, 0) + tl.where(down, 1025, 0) + tl.where(negative & (clamped > log_cap), 1050625, 0)
    highest = tl.where(valid, clamped, float("-inf"))
    local = tl.arange(0, ROWS)
    target = partials + ((first_row + local) * blocks + block) * _COLUMNS
    _store_partials(target, local < left, loss, tokens, clipped, excess, highest, kl)


@triton.jit
def _store_partials(target, inside, loss, tokens, clipped, excess, highest, kl):
    """Reduce a tile along its tokens and store it in the order of PARTIALS, one place for each row: no atomics."""
    tokens, clipped = tl.sum(tokens, axis=1), tl.sum(clipped, axis=1)
    excess, highest = tl.sum(excess, axis=1), tl.max(highest, axis=1)
    tl.store(target, tl.sum(loss, axis=1), mask=inside)
    tl.store(target + 1, (tokens % 1025).to(tl.float32), mask=inside)
    tl.store(target + 2, (clipped % 1025).to(tl.float32), mask=inside)
    tl.store(target + 3, (clipped // 1025 % 1025).to(tl.float32), mask=inside)
    tl.store(target + 4, (clipped // 1050625).to(tl.float32), mask=inside)
    tl.store(target + 5, (tokens // 1025).to(tl.float32), mask=inside)
    tl.store(target + 6, excess, mask=inside)
    # The maximum drops NaN; the sum, which is finite without one since |x| ≤ 20, has kept it.
    tl.store(target + 7, tl.where(excess != excess, excess, highest), mask=inside)
    tl.store(target + 8, tl.sum(kl, axis=1), mask=inside)


# --- launchers ---------------------------------------------------------------------------------------------------------------


def available(device: torch.device | str) -> bool:
    """Whether the kernels can run on tensors of `device`: any GPU, and everything under Triton's interpreter."""
    return torch.device(device).type == "cuda" or not isinstance(_lookup_kernel, triton.JITFunction)


def lookup(logp: Tensor, nodes: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Lower and upper log-bound of each token from a float table (`bandtheory.float_table`).

    Args:
        logp: log-probabilities (nats), float32, any shape. Positive counts as 0; NaN gives what the table says, NaN.
        nodes: int32, `(N,)`, contiguous.
        rows: float32, `(R, 8)`, contiguous.

    Returns:
        Two float32 tensors of the shape of `logp`, log-ratios.

    Raises:
        TypeError, ValueError: a tensor of another dtype, or a table of another shape, layout or device.
    """
    _check_dtype("logp", logp, (torch.float32,))
    check_table(nodes, rows, logp.device)
    logp = logp.detach().contiguous()
    lower, upper = torch.empty_like(logp), torch.empty_like(logp)
    if logp.numel() > 0:
        with torch.cuda.device_of(logp):  # Triton launches on the current device
            grid = (triton.cdiv(logp.numel(), _LOOKUP_BLOCK),)
            _lookup_kernel[grid](
                logp, nodes, rows.view(torch.int64), lower, upper, logp.numel(), BLOCK=_LOOKUP_BLOCK, num_warps=4
            )
    return lower, upper


def lookup_half(logp: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    """Lower and upper log-bound of each token of a half dtype: one gather by its bit pattern.

    Args:
        logp: log-probabilities (nats), float16 or bfloat16, any shape.
        table: `(65536, 2)`, uint16 or int16, contiguous: the bit patterns of both bounds for each pattern of `logp`, positive
            numbers and NaN included.

    Returns:
        Two tensors of the shape and dtype of `logp`, log-ratios.

    Raises:
        TypeError, ValueError: a tensor of another dtype, or a table of another shape, layout or device.
    """
    _check_dtype("logp", logp, HALF_DTYPES)
    _check_dtype("table", table, (torch.uint16, torch.int16))
    _check_layout("table", table, (65536, 2), logp.device)
    logp = logp.detach().contiguous()
    lower, upper = torch.empty_like(logp), torch.empty_like(logp)
    if logp.numel() > 0:
        with torch.cuda.device_of(logp):  # Triton launches on the current device
            # int32 holds both bounds of a token, the lower one in its low half.
            words = (logp.view(torch.int16), table.view(torch.int32), lower.view(torch.int16), upper.view(torch.int16))
            grid = (triton.cdiv(logp.numel(), _LOOKUP_BLOCK),)
            _half_kernel[grid](*words, logp.numel(), BLOCK=_LOOKUP_BLOCK, **_OPTIONS)
    return lower, upper


def surrogate(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    nodes: Tensor,
    rows: Tensor,
    log_cap: float,
) -> tuple[Tensor, Tensor]:
    """Derivative of the clipped token losses and partial results of everything that is summed, in one pass.

    Arguments are those of `bandtheory.torch.surrogate.surrogate_sums`, which documents and checks them.

    Returns:
        The derivative of each token's loss in its `logp`, `(B, T)`, float32, 0 where masked or clipped; and
        `(B, blocks, len(PARTIALS))`, float32, what `PARTIALS` names over each of `blocks` pieces of a row. Counts are exact,
        and the result is the same in every run: there are no atomics.
    """
    halves = rows.detach().view(torch.int64)
    count, length = logp.shape
    blocks = triton.cdiv(length, PIECE)
    coefficient = logp.new_empty((count, length), dtype=torch.float32)
    partials = logp.new_empty((count, blocks, len(PARTIALS)), dtype=torch.float32)
    if coefficient.numel() > 0:
        if advantages.stride(1) == 0:  # expanded from one a row
            advantages = advantages[:, :1]
        inputs = (tensor.detach().contiguous() for tensor in (logp, old_logp, advantages, mask))
        tile = _tile_shape(length)
        tiles = triton.cdiv(count, tile[0])
        grid = (blocks, min(tiles, _GRID), triton.cdiv(tiles, _GRID))
        options = {"PER_TOKEN": advantages.shape[1] == length, "ROWS": tile[0], "BLOCK": tile[1], **_OPTIONS}
        with torch.cuda.device_of(logp):  # Triton launches on the current device
            table = (nodes, halves)
            _surrogate_kernel[grid](*inputs, *table, coefficient, partials, count, length, blocks, log_cap, **options)
    return coefficient, partials


def _tile_shape(length: int) -> tuple[int, int]:
    """Rows and tokens of one program for rows of `length` tokens: 1024 lanes, short rows side by side to keep them busy.

    Eight tokens a thread are enough loads in flight; sixteen would take its registers, four double the cost of reducing.
    """
    tokens = min(triton.next_power_of_2(length), PIECE)
    return PIECE // tokens, tokens


def check_table(nodes: Tensor, rows: Tensor, device: torch.device) -> None:
    """Refuse what cannot be a float table on `device`: TypeError and ValueError."""
    _check_dtype("nodes", nodes, (torch.int32,))
    _check_dtype("rows", rows, (torch.float32,))
    _check_layout("nodes", nodes, (nodes.numel(),), device)
    _check_layout("rows", rows, (rows.numel() // 8, 8), device)


def _check_dtype(name: str, tensor: Tensor, accepted: tuple[torch.dtype, ...]) -> None:
    if tensor.dtype not in accepted:
        raise TypeError(f"{name}: expected dtype {' or '.join(map(str, accepted))}, got {tensor.dtype}")


def _check_layout(name: str, table: Tensor, shape: tuple[int, ...], device: torch.device) -> None:
    if table.shape != shape or not table.is_contiguous():
        raise ValueError(f"{name}: expected a contiguous tensor of shape {shape}, got {tuple(table.shape)}")
    if table.device != device:
        raise ValueError(f"{name}: is on device {table.device}, but logp is on {device}")
