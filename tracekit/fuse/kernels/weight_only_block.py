"""The GEMM of weight_only_product with what surrounds it in a decoder: an RMS norm of its input before it, and a gate
(SiLU of one half of the outputs times the other) or a residual after it.

A step of one row waits for small kernels as long as for large ones. While it computes, the kernel can have the L2 read
the weights of a later one.
"""

import torch
import triton
import triton.language as tl

from tracekit.fuse.kernels import weight_only_product as plain
from tracekit.fuse.kernels.weight_only_product import _halves, _read, _run_product

MOST_AHEAD = 4
"""Number of tensors that the L2 can be asked for."""
AHEAD_BYTES = 24_000_000
"""Bytes of them, at most: half of the L2 of an H100."""


@triton.jit
def _ask_for(ptr, part, WARPS: tl.constexpr):
    """Have the L2 read a part of a tensor, in bytes, for each warp of the grid. Nothing waits for it."""
    warp = tl.program_id(0) * WARPS + tl.arange(0, 32 * WARPS) // 32
    tl.inline_asm_elementwise(
        "{.reg .pred one; elect.sync _|one, 0xffffffff; setp.gt.and.s32 one, $2, 0, one;"
        "@one cp.async.bulk.prefetch.L2.global [$1], $2; mov.b32 $0, $2;}",
        "=r,l,r", [ptr.to(tl.int64) + warp.to(tl.int64) * part, part], tl.int32, False, 1,
    )  # fmt: skip


@triton.jit
def _inverse_rms(x_ptr, epsilon, K: tl.constexpr, KIND: tl.constexpr):
    """Return 1 / sqrt(mean of squares + epsilon) of a row, and the power of two below it."""
    squares = tl.zeros([512], tl.float32)
    for start in tl.static_range(0, K // 2, 512):
        at = start + tl.arange(0, 512)
        low, high = _halves(tl.load(x_ptr + at, mask=at < K // 2, other=0), KIND)
        squares += low * low + high * high
    inverse = 1.0 / tl.sqrt(tl.sum(squares) / K + epsilon)
    return inverse, (inverse.to(tl.int32, bitcast=True) & 0x7F800000).to(tl.float32, bitcast=True)


@triton.jit
def _gained(pairs, gains, power, KIND: tl.constexpr, PAIRS: tl.constexpr):
    """Return pairs of numbers times a power of two, so that none overflows, and times their gains."""
    if PAIRS:
        twice = (power.to(tl.float16).to(tl.int16, bitcast=True).to(tl.int32) & 0xFFFF) * 0x10001
        return tl.inline_asm_elementwise(
            "{.reg .b32 w; mul.rn.f16x2 w, $1, $3; mul.rn.f16x2 $0, w, $2;}",
            "=r,r,r,r", [pairs, gains, twice], tl.int32, True, 1,
        )  # fmt: skip
    WIDTH: tl.constexpr = KIND.primitive_bitwidth
    PLAIN: tl.constexpr = tl.uint16 if WIDTH == 16 else tl.uint32
    low, high = _halves(pairs, KIND)
    low_gain, high_gain = _halves(gains, KIND)
    one = (low * power * low_gain).to(KIND).to(PLAIN, bitcast=True).to(pairs.dtype)
    other = (high * power * high_gain).to(KIND).to(PLAIN, bitcast=True).to(pairs.dtype)
    return one | (other << WIDTH)


@triton.jit
def _inputs(
    x_ptr, gain_ptr, run, power, BITS: tl.constexpr, NORM: tl.constexpr, KIND: tl.constexpr, PAIRS: tl.constexpr
):  # fmt: skip
    """Return the inputs of each thread's run as 16 / BITS tensors of pairs, normed but for a factor."""
    x = ()
    for i in tl.static_range(16 // BITS):
        at = (run * (64 // BITS) + 4 * i)[:, None] + tl.arange(0, 4)[None, :]
        pairs = tl.load(x_ptr + at)
        x += (_gained(pairs, tl.load(gain_ptr + at), power, KIND, PAIRS) if NORM else pairs,)
    return x


@triton.jit
def _gate(out, KIND: tl.constexpr, EACH: tl.constexpr):
    """Return SiLU of every other number of a row times the one after it."""
    gate, up = tl.split(out.to(KIND).to(tl.float32).reshape(4, EACH // 2, 2))
    return (gate / (1.0 + tl.exp(-gate))).to(KIND).to(tl.float32) * up


@triton.jit
def _ask_for_all(ahead0, part0, ahead1, part1, ahead2, part2, ahead3, part3, WARPS: tl.constexpr):
    _ask_for(ahead0, part0, WARPS)
    _ask_for(ahead1, part1, WARPS)
    _ask_for(ahead2, part2, WARPS)
    _ask_for(ahead3, part3, WARPS)


@triton.jit
def _product(
    x_ptr, gain_ptr, residual_ptr, weight_ptr, scale_ptr, bias_ptr, out_ptr, columns, epsilon, magic,
    ahead0, part0, ahead1, part1, ahead2, part2, ahead3, part3,
    K: tl.constexpr, GROUP: tl.constexpr, BITS: tl.constexpr, NORM: tl.constexpr, GATED: tl.constexpr,
    RESIDUAL: tl.constexpr, BIAS: tl.constexpr, EACH: tl.constexpr, DEEP: tl.constexpr, WARPS: tl.constexpr,
    PAIRS: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """Multiply a row, as the kernel of weight_only_product does. Of a GATED pair of outputs, a thread has both."""
    KIND: tl.constexpr = out_ptr.dtype.element_ty
    SHARE: tl.constexpr = 2 if GATED else 1
    runs: tl.constexpr = K * BITS // 128
    reads: tl.constexpr = (runs + 8 * WARPS - 1) // (8 * WARPS) * EACH
    thread, block, row = tl.arange(0, 32 * WARPS), tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    block *= 4 * EACH // SHARE
    first = thread // 32 * 8 + thread % 8
    x_ptr += row * (K // 2)
    outputs, totals, read = (), (), ()
    for i in tl.static_range(EACH):
        outputs += (tl.minimum(block + i // SHARE * 4 + thread // 8 % 4, columns - 1) + i % SHARE * columns,)
        totals += (tl.zeros([32 * WARPS], tl.float32),)
    for i in tl.static_range(min(DEEP * EACH, reads)):
        read += (_read(weight_ptr, scale_ptr, outputs[i % EACH], first + i // EACH * 8 * WARPS, K, GROUP, BITS),)
    if EARLY:
        tl.extra.cuda.gdc_wait()
    output = block + tl.arange(0, 4)[:, None] + 4 * tl.arange(0, EACH // SHARE)[None, :]
    if RESIDUAL:
        residual = tl.load(residual_ptr + row * columns + output, mask=output < columns).to(tl.float32)
    inverse, power = _inverse_rms(x_ptr, epsilon, K, KIND) if NORM else (1.0, 1.0)
    for start in tl.static_range(0, reads, EACH):
        run = tl.minimum(first + start // EACH * 8 * WARPS, runs - 1)
        x, added = _inputs(x_ptr, gain_ptr, run, power, BITS, NORM, KIND, PAIRS), ()
        if EARLY and start + EACH == reads:  # a kernel that needs none of these outputs may not wait, and write into x
            tl.extra.cuda.gdc_launch_dependents()
        for at in tl.static_range(EACH):
            if start + at + DEEP * EACH < reads:
                run = first + (start // EACH + DEEP) * 8 * WARPS
                read += (_read(weight_ptr, scale_ptr, outputs[at], run, K, GROUP, BITS),)
            words, scale = read[start + at]
            added += (totals[at] + _run_product(words, x, magic, BITS, PAIRS, KIND) * scale.to(tl.float32),)
        totals = added
    if EARLY:
        _ask_for_all(ahead0, part0, ahead1, part1, ahead2, part2, ahead3, part3, WARPS)
    total = tl.join(totals[0], totals[1])
    if EACH == 4:
        total = tl.join(tl.join(totals[0], totals[2]), tl.join(totals[1], totals[3]))
    out = tl.sum(tl.sum(total.reshape(WARPS, 4, 8, EACH), axis=2), axis=0) * (8 << BITS if PAIRS else 1)
    if NORM:
        out *= inverse / power
    if BIAS:
        out += tl.load(bias_ptr + output, mask=output < columns).to(tl.float32)
    out = _gate(out, KIND, EACH) if GATED else out
    if RESIDUAL:
        out = out.to(KIND).to(tl.float32) + residual
    tl.store(out_ptr + row * columns + output, out, mask=output < columns)


def fused(x, packed, scale, bias, bits, gain=None, epsilon=0.0, gated=False, residual=None, ahead=()):
    """Return the product of rows, at most MOST_ROWS, normed if there is a gain, with a gate or a residual added."""
    columns, inputs = len(packed) // (2 if gated else 1), x.shape[-1]
    out = torch.empty(*x.shape[:-1], columns, dtype=x.dtype, device=x.device)
    pairs, early = x.dtype == torch.float16 and not plain._is_interpreted(), plain._starts_early(x.device)
    rows = plain._pairs_from(x.reshape(-1, inputs).contiguous())
    block, deep, warps = plain.CONFIG.values()
    blocks = triton.cdiv(columns, block // (2 if gated else 1))
    none = out if residual is None else residual.contiguous()
    _product[(blocks, len(rows))](
        rows, rows if gain is None else plain._pairs_from(gain[None])[0], none, packed, scale, bias, out, columns,
        epsilon, plain._MAGIC_PAIR if pairs else plain._MAGIC, *_parts(ahead, blocks * warps, packed), inputs,
        inputs // scale.shape[1], bits, gain is not None, gated, residual is not None, bias is not None, block // 4,
        deep, warps, pairs, early, num_warps=warps, **({"launch_pdl": True} if early else {}),
    )  # fmt: skip
    return out


def _parts(ahead, warps, packed):
    """Return MOST_AHEAD times a tensor and the bytes of it that each of `warps` asks for, multiples of 16."""
    parts, left = [], AHEAD_BYTES
    for each in [each for each in ahead if each.device == packed.device][:MOST_AHEAD]:
        parts += [each, max(0, min(each.nbytes, left) // warps // 16 * 16)]
        left -= each.nbytes
    return parts + [packed, 0] * (MOST_AHEAD - len(parts) // 2)


def reference(x, packed, scale, bias, bits, gain=None, epsilon=0.0, gated=False, residual=None, ahead=()):
    if gain is not None:
        wide = x.float()
        x = gain * (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon)).to(x.dtype)
    out = plain.reference(x, packed, scale, bias, bits)
    if gated:
        gate, up = out.chunk(2, -1)
        out = torch.nn.functional.silu(gate) * up
    return out if residual is None else residual + out
