"""Memory access of PyTorch's kernels, as TensorIterator chooses it from shapes, types and strides."""

from collections.abc import Sequence

from tracekit.analyzers.costs.call import Access
from tracekit.analyzers.costs.dtypes import BOOL
from tracekit.analyzers.costs.tensors import Shape, Tensor

_HALF = ("float16", "bfloat16")


def of_loop(inputs: Sequence[Tensor], out: Tensor) -> Access:
    """Return the access of an element-wise kernel. `out` has the type of the arithmetic and the layout of the inputs.

    Kernels use vector loads if nothing is broadcast and all tensors have one type and one layout. A mask of bools may
    have its own type.
    """
    tensors = [tensor for tensor in inputs if tensor.shape]
    walked = [_steps(tensor, out.shape) for tensor in tensors]
    if any(_crosses(steps, out.shape) for steps in walked) and len(set(walked)) > 1:
        return "transposed"
    cast = any(tensor.dtype not in (out.dtype, BOOL) for tensor in tensors)
    broadcast = any(tensor.numel != out.numel for tensor in tensors)
    if broadcast or len(set(walked)) > 1 or any(not _dense(steps, out.shape) for steps in walked):
        return "cast" if cast else "indexed"
    return "indexed" if cast else "linear"


def of_copy(source: Tensor, to: Tensor) -> Access:
    """Return the access of a copy. It is that of an element-wise kernel, except that contiguous casts to 16 bits are
    vectorized; other casts are not."""
    if to.dtype.name in _HALF and source.numel == to.numel and _steps(source, to.shape) == _steps(to, to.shape):
        return "linear"
    steps, written = _steps(source, to.shape), _steps(to, to.shape)
    if steps != written and _crosses(steps, to.shape) != _crosses(written, to.shape):
        return "transposed"
    if source.dtype != to.dtype:
        return "cast"
    return "linear" if steps == written and _dense(steps, to.shape) else "indexed"


def is_broadcast(tensor: Tensor, axis: int) -> bool:
    """Return whether all entries along `axis` are one element in memory (`expand`)."""
    return tensor.strides is not None and tensor.shape[axis] > 1 and tensor.strides[axis] == 0


def _steps(tensor: Tensor, shape: Shape) -> Shape:
    """Return the tensor's strides along `shape`; 0 where it is broadcast or has one element."""
    strides = tensor.strides if tensor.strides is not None else _contiguous(tensor.shape)
    padding = len(shape) - len(tensor.shape)
    own = [step if size > 1 else 0 for step, size in zip(strides, tensor.shape, strict=True)]
    return tuple([0] * padding + own)


def _contiguous(shape: Shape) -> Shape:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _dense(steps: Shape, shape: Shape) -> bool:
    """Return whether the elements fill one contiguous range of memory, in some order of dims."""
    expected = 1
    for step, size in sorted((step, size) for step, size in zip(steps, shape, strict=True) if size > 1):
        if step != expected:
            return False
        expected *= size
    return True


def _crosses(steps: Shape, shape: Shape) -> bool:
    """Return whether elements that are adjacent in the result are not adjacent in this tensor."""
    inner = next((step for step, size in zip(reversed(steps), reversed(shape), strict=True) if size > 1), 1)
    return inner > 1
