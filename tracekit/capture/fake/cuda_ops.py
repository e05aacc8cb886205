"""Decides which ops launch kernels on CUDA, and which make the host wait."""

from collections.abc import Callable
from typing import Any

import torch

from tracekit.analyzers.core import InputError, facts

aten = torch.ops.aten


_LAUNCH_NOTHING = frozenset(facts(__file__)["launch_nothing"])


def is_recorded(func: Any) -> bool:
    """Return whether a profiler would record the call. Queries about a tensor (prim::device, sizes) are not ops."""
    return func.namespace != "prim" and not func._schema.name.startswith("aten::sym_")


def launches(func: Any, tensors: list[torch.Tensor], outputs: list[torch.Tensor]) -> bool:
    """Return whether an op launches a kernel on CUDA. Views, allocations and ops without output elements do not.

    Neither do list ops on scalar tensors alone: these are an optimizer's step counters, which stay on the CPU.
    """
    name = func._schema.name
    if name in _LAUNCH_NOTHING or func.is_view:
        return False
    if name.startswith("aten::_foreach_"):
        return any(t.dim() for t in tensors)
    return not outputs or any(t.numel() for t in outputs)


def reads_back(func: Any, tensors: list[torch.Tensor]) -> bool:
    """Return whether the host waits for a number. Floats are an optimizer's step counters on the CPU, which need no
    wait."""
    return func is aten._local_scalar_dense.default and not tensors[0].dtype.is_floating_point


Call = tuple[Any, tuple[Any, ...], list[torch.Tensor]]
"""An OpOverload, its arguments and its results."""
Decomposed = tuple[list[Call], Any, tuple[Any, ...]]
"""The calls that come first, and the OpOverload and arguments of the op itself."""


def decomposed(func: Any, args: tuple[Any, ...], outputs: list[torch.Tensor]) -> Decomposed:
    """Return the calls that `func` makes on CUDA before its own kernel, and the remaining call."""
    split = _OPS.get(func._schema.name)
    return split(func, args, outputs) if split else ([], func, args)


def workspace(func: Any, args: tuple[Any, ...], outputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return the memory that a convolution allocates in addition to its tensors: copies with channels last, for tensor
    units.

    Windows of one position need none, and neither do depthwise convolutions.
    """
    if func is not aten.convolution.default or args[1].dtype not in (torch.float16, torch.bfloat16):
        return []
    source, weight = args[:2]
    converts = weight[0, 0].numel() > 1 < weight.shape[1] and _layout(source, weight) == torch.contiguous_format
    return [torch.empty_like(each) for each in (source, weight, *outputs)] if converts else []


def _cleared(func: Any, args: tuple[Any, ...], outputs: list[torch.Tensor]) -> Decomposed:
    """Clear the results of an op that writes only some elements of them."""
    return [(aten.zero_.default, (out,), [out]) for out in outputs], func, args


def _clone(_func: Any, args: tuple[Any, ...], outputs: list[torch.Tensor]) -> Decomposed:
    return [], aten.copy_.default, (outputs[0], args[0])


def _masked_fill(func: Any, args: tuple[Any, ...], outputs: list[torch.Tensor]) -> Decomposed:
    in_place = getattr(aten.masked_fill_, func._overloadname)
    return [(aten.copy_.default, (outputs[0], args[0]), outputs)], in_place, (outputs[0], *args[1:])


def _softmax_backward(func: Any, args: tuple[Any, ...], _outputs: list[torch.Tensor]) -> Decomposed:
    grad, result = args[:2]
    product = torch.empty_like(result)
    return [(aten.mul.Tensor, (grad, result), [product])], func, (product, *args[1:])


def _reads_contiguous(func: Any, args: tuple[Any, ...], _outputs: list[torch.Tensor]) -> Decomposed:
    """Copy the gradient and the input of a norm or convolution that are not in the layout of its kernel."""
    name, calls, read = func._schema.name, list[Call](), list(args)
    first = 1 if "backward" in name else 0
    layout = _layout(*args[first : first + 2]) if "convolution" in name else torch.contiguous_format
    for index in range(first + 1):
        if not args[index].is_contiguous(memory_format=layout):
            read[index] = torch.empty_like(args[index], memory_format=layout)
            calls.append((aten.copy_.default, (read[index], args[index]), [read[index]]))
    return calls, func, tuple(read)


def _layout(source: torch.Tensor, weight: torch.Tensor) -> torch.memory_format:
    """Return the layout in which a convolution runs: channels last if its input or its weights are."""
    last = torch.channels_last
    if source.dim() == 4 and any(
        each.is_contiguous(memory_format=last) > each.is_contiguous() for each in (source, weight)
    ):
        return last
    return torch.contiguous_format


_NORMS = ("aten::native_layer_norm", "aten::native_group_norm", "tracekit::rms_norm")
_OPS: dict[str, Callable[..., Decomposed]] = {
    "aten::nll_loss_backward": _cleared,
    "aten::nll_loss2d_backward": _cleared,
    "aten::max_pool2d_with_indices_backward": _cleared,
    "aten::embedding_dense_backward": _cleared,
    "aten::constant_pad_nd": _cleared,
    "aten::clone": _clone,
    "aten::masked_fill": _masked_fill,
    "aten::_softmax_backward_data": _softmax_backward,
    **{f"{name}{suffix}": _reads_contiguous for name in (*_NORMS, "aten::convolution") for suffix in ("", "_backward")},
}


_OF_CPUS = ("fbgemm", "mkldnn", "mkl", "onednn", "prepacked", "quantized", "sparse")
"""Namespaces of ops that PyTorch has only for CPUs."""
_PLACES = {"cpu", "meta"}


def check_is_op(func: Any) -> None:
    """Raise InputError for a higher-order function, such as flex_attention and cond, which is not an op."""
    if isinstance(func, torch._ops.HigherOrderOperator):
        raise InputError(
            f"{func.name()} cannot be modelled.",
            "torch.compile generates its kernel, whose cost is unknown.",
            "Use scaled_dot_product_attention in its place, or model the run without the function.",
        )


def check(func: Any, tensors: list[torch.Tensor]) -> None:
    """Raise InputError for an op that cannot be modelled on a GPU."""
    if func.namespace in _OF_CPUS or any(tensor.is_mkldnn for tensor in tensors):
        raise InputError(
            f"{func._schema.name} cannot be modelled.",
            "PyTorch has this op for CPUs only.",
            "Run the model without it; int8 on a GPU is predicted by `tracekit predict --apply int8-dynamic`.",
        )
    elsewhere = {tensor.device.type for tensor in tensors} - _PLACES
    if elsewhere:
        raise InputError(
            f"{func._schema.name} on {elsewhere.pop()} cannot be modelled.",
            "All tensors of a recorded step are on the CPU, and stand for those of a GPU.",
            "Create its tensors in the step, by functions of torch, or load them with map_location='cpu'.",
        )
    if any(tensor.is_nested and tensor.layout is torch.strided for tensor in tensors):
        raise InputError(
            f"{func._schema.name} of nested tensors cannot be modelled.",
            "Nested tensors of this layout have no shape.",
            "Make them with layout=torch.jagged, and pad the inputs of attention.",
        )
