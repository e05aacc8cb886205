"""Copies, casts, fills and rearrangements: no FLOPs.

aten::to, contiguous and reshape have no cost: if they move data, they call clone or copy_, which has the cost.
"""

from math import ceil, isnan, nan, prod

from tracekit.analyzers.cost.ops import pointwise, tensors
from tracekit.analyzers.cost.ops.arguments import Arguments, moves
from tracekit.analyzers.cost.ops.call import Cost
from tracekit.analyzers.cost.ops.registry import costs
from tracekit.analyzers.cost.ops.tensors import MalformedCall, Tensor, broadcast, promote


@costs("aten::copy_")
def copy_into(call: Arguments) -> Cost:
    """(self, src): src may be broadcast and have another type."""
    to, source = call.tensor(0), call.tensor(1)
    broadcast(to.shape, source.shape)
    walk = pointwise.copy_access(source, to)
    return moves("copy", 0, [_stored(source)], [to], promote([to, source]), access=walk)


def _stored(source: Tensor) -> Tensor:
    """Return the tensor without the elements that `expand` repeats."""
    kept = [1 if pointwise.is_broadcast(source, axis) else size for axis, size in enumerate(source.shape)]
    return source.like(kept)


@costs("aten::_to_copy")
def to_copy(call: Arguments) -> Cost:
    """(self, dtype, ...)."""
    x = call.tensor(0)
    out = x.like(dtype=call.dtype(1))
    return moves("copy", 0, [x], [out], promote([x, out]))


@costs(
    "aten::clone",
    "aten::flip",
    "aten::roll",
    "aten::tril",
    "aten::tril_",
    "aten::triu",
    "aten::triu_",
    "aten::rot90",
    "aten::pin_memory",
    "aten::_pin_memory",
    "aten::pixel_shuffle",
    "aten::pixel_unshuffle",
    "aten::_local_scalar_dense",
)
def rearrange(call: Arguments) -> Cost:
    x = call.tensor(0)
    return moves("copy", 0, [x], [x], x.dtype)


@costs("aten::repeat")
def repeat(call: Arguments) -> Cost:
    """(self, repeats)."""
    x, repeats = call.tensor(0), call.integers(1)
    if repeats is None or min(repeats, default=0) < 0:
        raise MalformedCall("repeats are missing or negative")
    return moves("copy", 0, [x], [x.like((prod(repeats), *x.shape))], x.dtype)


@costs("aten::constant_pad_nd", "aten::reflection_pad1d", "aten::reflection_pad2d")
@costs("aten::replication_pad1d", "aten::replication_pad2d", "aten::replication_pad3d", "aten::reflection_pad3d")
def pad(call: Arguments) -> Cost:
    """(self, pad): pairs for the last dim come first; a negative pad crops. Elements are copied one at a time."""
    x, pads = call.tensor(0), call.integers(1)
    if pads is None or len(pads) % 2 or len(pads) > 2 * len(x.shape):
        raise MalformedCall("pads are not recorded")
    shape = list(x.shape)
    for pair, (before, after) in enumerate(zip(pads[::2], pads[1::2], strict=True)):
        shape[-1 - pair] = max(shape[-1 - pair] + before + after, 0)
    return moves("copy", 0, [x], [x.like(shape)], x.dtype, access="indexed")


@costs("aten::fill_", "aten::zero_")
def fill(call: Arguments) -> Cost:
    x = call.tensor(0)
    return moves("copy", 0, [], [x], x.dtype)


@costs("aten::uniform_", "aten::normal_", "aten::log_normal_", "aten::random_")
@costs("aten::exponential_", "aten::geometric_", "aten::cauchy_")
def draw(call: Arguments) -> Cost:
    x = call.tensor(0)
    return moves("copy", 0, [], [x], x.dtype, access="random")


@costs("aten::bernoulli_", "aten::bernoulli")
def bernoulli(call: Arguments) -> Cost:
    """(self, p): reads a tensor of probabilities, which is self if the op is out of place."""
    x = call.tensor(0)
    probabilities = call.optional(1) if call.name.endswith("_") else x
    return moves("copy", 0, [probabilities], [x], x.dtype)


@costs("aten::zeros_like", "aten::ones_like", "aten::full_like", "aten::rand_like", "aten::randn_like")
def fill_like(call: Arguments) -> Cost:
    """(self, dtype, ...); full_like has the value before dtype."""
    x = call.tensor(0)
    dtype = call.dtype(2 if call.name == "aten::full_like" else 1)
    return moves("copy", 0, [], [x.like(dtype=dtype)], x.dtype)


@costs("aten::zeros", "aten::ones", "aten::rand", "aten::randn", size=0, dtype=1)
@costs("aten::full", size=0, dtype=2)
@costs("aten::new_zeros", "aten::new_ones", size=1, dtype=2)
@costs("aten::new_full", size=1, dtype=3)
def create(call: Arguments, size: int, dtype: int) -> Cost:
    shape, like = call.integers(size), call.optional(0)
    if shape is None:
        raise MalformedCall("the size is not recorded")
    default = like.dtype if like else tensors.FLOAT32
    out = Tensor(shape, call.dtype(dtype) or default)
    return moves("copy", 0, [], [out], out.dtype)


@costs("aten::scalar_tensor")
def scalar_tensor(call: Arguments) -> Cost:
    """(value, dtype, ...)."""
    out = Tensor((), call.dtype(1) or tensors.FLOAT32)
    return moves("copy", 0, [], [out], out.dtype)


_OF_A_NEW_TENSOR = ("dtype", "layout", "device", "pin_memory")


@costs("aten::arange")
def arange(call: Arguments) -> Cost:
    """(end), (start, end) or (start, end, step), followed by the output tensor or by (dtype, layout, device, pin)."""
    out = call.optional(len(call) - 1)
    bounds = [call.number(index, nan) for index in range(len(call) - (1 if out else len(_OF_A_NEW_TENSOR)))]
    if not 1 <= len(bounds) <= 3 or any(map(isnan, bounds)):
        raise MalformedCall(f"{call.name}: bounds are missing")
    start, end, step = (0, *bounds, 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    length = (end - start) / step if step else 0
    if not abs(length) < 1 << 62:
        raise MalformedCall(f"a range of {length}")
    natural = tensors.INT64 if all(isinstance(bound, int) for bound in bounds) else tensors.FLOAT32
    dtype = out.dtype if out else call.dtype(len(bounds)) or natural
    return moves("copy", 0, [], [Tensor((max(ceil(length), 0),), dtype)], dtype)
