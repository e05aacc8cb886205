"""The products of a decoder layer of one token with weights of 4 or 8 bits: norm, gate and residual are part of them.

A product that ends with the residual also writes its result times the gain of the next norm, and the sums of squares
of its blocks. The product that follows multiplies its outputs by the factor that these give. Inputs are ordered: the
n-th 8 inputs of all runs of weights follow each other, so that neighbouring threads read neighbouring bytes. Kernels
start when those before them begin to multiply, so each must be launched right after the one whose outputs it reads.
"""

import torch
import triton
import triton.language as tl

from tracekit.fuse.kernels.weight_only_product import (
    _MAGIC,
    _MAGIC_PAIR,
    _begun,
    _is_interpreted,
    _pairs_from,
    _starts_early,
    _sums,
    unpack,
)

_SHORT, _LONG = (16, 8, 2, 4), (8, 32, 2, 4)
"""ROWS, LANES, DEEP and num_warps (`weight_only_product`) of products with few and with many inputs: of ten launches on
an H100, the second was fastest for 8,192 inputs."""
_MANY_RUNS = 256
"""Fewest runs of weights of an output that are many."""


@triton.jit
def _product(
    x_ptr, weight_ptr, scale_ptr, bias_ptr, squares_ptr, residual_ptr, gain_ptr, out_ptr, gained_ptr, sums_ptr,
    columns, x_stride, magic, parts, epsilon, K: tl.constexpr, GROUP: tl.constexpr, BITS: tl.constexpr,
    BIAS: tl.constexpr, NORMED: tl.constexpr, GATED: tl.constexpr, ADDED: tl.constexpr,
    EACH: tl.constexpr, LANES: tl.constexpr, DEEP: tl.constexpr, WARPS: tl.constexpr,
    PAIRS: tl.constexpr, EARLY: tl.constexpr, LATE: tl.constexpr,
):  # fmt: skip
    """Multiply a row by the weights of 32 / LANES * EACH outputs, of which half are gates if GATED.

    `squares` of NORMED numbers, of which there are `parts`, add up to those of the inputs. LATE: later kernels start
    when the inputs are read.
    """
    if EARLY and not LATE:
        tl.extra.cuda.gdc_launch_dependents()
    kept: tl.constexpr = EACH // 2 if GATED else EACH
    SIDE: tl.constexpr = 32 // LANES
    block, row = tl.program_id(0).to(tl.int64) * (SIDE * kept), tl.program_id(1).to(tl.int64)
    outputs = ()
    for i in tl.static_range(EACH):
        at = SIDE * (i // 2) + i % 2 * columns if GATED else SIDE * i
        outputs += (block + at + tl.arange(0, 32 * WARPS) // LANES % SIDE,)
    read = _begun(weight_ptr, scale_ptr, outputs, K, GROUP, BITS, LANES, DEEP, WARPS)
    result = block + tl.arange(0, SIDE)[:, None] + SIDE * tl.arange(0, kept)[None, :]
    ordered = result % (128 // BITS) // 8 * (columns * BITS // 16) + result // (128 // BITS) * 8 + result % 8
    if EARLY:
        tl.extra.cuda.gdc_wait()
    if NORMED:
        part = tl.arange(0, NORMED)
        squares = tl.load(squares_ptr + row * parts + part, mask=part < parts, other=0.0)
    if ADDED:
        residual = tl.load(residual_ptr + row * columns + result).to(tl.float32)
        gain = tl.load(gain_ptr + result).to(tl.float32)
    kind: tl.constexpr = out_ptr.dtype.element_ty
    x_ptr += row * x_stride
    out = _sums(
        x_ptr, weight_ptr, scale_ptr, outputs, read, magic, K, GROUP, BITS, LANES, DEEP, WARPS, PAIRS, LATE, kind,
        True,
    )  # fmt: skip
    if NORMED:
        out *= tl.rsqrt(tl.sum(squares) / K + epsilon)
    if GATED:
        gate, out = tl.split(out.reshape(SIDE, kept, 2))
        if BIAS:
            gate += tl.load(bias_ptr + result).to(tl.float32)
            out += tl.load(bias_ptr + columns + result).to(tl.float32)
        out *= gate / (1 + tl.exp(-gate))
    elif BIAS:
        out += tl.load(bias_ptr + result).to(tl.float32)
    if ADDED:
        added = (out + residual).to(kind)
        out = added.to(tl.float32)
        tl.store(gained_ptr + row * columns + ordered, out * gain)
        tl.store(sums_ptr + row * tl.num_programs(0) + tl.program_id(0), tl.sum(out * out))
    tl.store(out_ptr + row * columns + (ordered if GATED else result), out)


def fused(
    x, packed, scale, bias=None, bits=4, squares=None, epsilon=0.0, gated=False, residual=None, gain=None, last=True
):
    """Return x @ weight.T + bias, for weights that `weight_only_product.pack` packed and ordered x (rows, inputs).

    squares: (rows, parts) in fp32, whose sum is that of a row's squares before their gain: the product is divided by
    their root mean square. gated: the first half of the weights are gates for the other, through SiLU; the result is
    ordered. residual and gain: returns the sum with the residual (rows, outputs), that times the gain (outputs),
    ordered, and the squares of the sum. last=False: the next kernel waits for this one before it reads or writes what
    kernels do.
    """
    (rows, inputs), many, early = x.shape, len(packed), _starts_early(x.device)
    columns, (block, lanes, deep, warps) = many // 2 if gated else many, _config(inputs, bits)
    out = torch.empty(rows, columns, dtype=x.dtype, device=x.device)
    grid, added = (many // block, rows), residual is not None
    gained, sums = (torch.empty_like(out), out.new_empty(rows, grid[0], dtype=torch.float32)) if added else (out, out)
    parts, pairs = 0 if squares is None else squares.shape[1], x.dtype == torch.float16 and not _is_interpreted()
    x = _pairs_from(x)
    _product[grid](
        x, packed, scale, bias, squares, residual, gain, out, gained, sums, columns, x.stride(0),
        _MAGIC_PAIR if pairs else _MAGIC, parts, epsilon, inputs, inputs // scale.shape[1], bits, bias is not None,
        triton.next_power_of_2(parts) if parts else 0, gated, added, block * lanes // 32, lanes, deep, warps, pairs,
        early, early and last, num_warps=warps, **({"launch_pdl": True} if early else {}),
    )  # fmt: skip
    return (out, gained, sums) if added else out


def blocks(outputs, inputs, bits=4):
    """Return how many blocks a product has."""
    return outputs // _config(inputs, bits)[0]


def _config(inputs, bits):
    return _LONG if inputs * bits // 128 >= _MANY_RUNS else _SHORT


def ordered(x, bits=4):
    """Return rows (rows, inputs) in the order in which the kernel reads them."""
    return x.unflatten(1, (-1, 16 // bits, 8)).transpose(1, 2).flatten(1)


def _natural(x, bits):
    return x.unflatten(1, (16 // bits, -1, 8)).transpose(1, 2).flatten(1)


def reference(x, packed, scale, bias=None, bits=4, squares=None, epsilon=0.0, gated=False, residual=None, gain=None):
    out = _natural(x, bits).float() @ unpack(packed, scale.float(), bits).t()
    if squares is not None:
        out *= (squares.sum(1, keepdim=True) / x.shape[1] + epsilon).rsqrt()
    out = out if bias is None else out + bias
    if gated:
        gate, up = out.chunk(2, 1)
        out = ordered(torch.nn.functional.silu(gate) * up, bits)
    if residual is None:
        return out.to(x.dtype)
    out = (out + residual).to(x.dtype)
    return out, ordered(out * gain, bits), out.float().square().sum(1, keepdim=True)
