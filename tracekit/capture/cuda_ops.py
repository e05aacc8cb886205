"""Decides which ops launch kernels on CUDA, and which make the host wait."""

from typing import Any

import torch

aten = torch.ops.aten

_LAUNCH_NOTHING = {
    "_c10d_functional::wait_tensor",
    "aten::_coalesced_",
    "aten::_local_scalar_dense",
    "aten::_nnz",
    "aten::_reshape_alias",
    "aten::_sparse_coo_tensor_unsafe",
    "aten::_sparse_coo_tensor_with_dims_and_tensors",
    "aten::_unsafe_view",
    "aten::as_strided_",
    "aten::dense_dim",
    "aten::detach",
    "aten::detach_",
    "aten::empty",
    "aten::empty_like",
    "aten::empty_strided",
    "aten::is_coalesced",
    "aten::is_same_size",
    "aten::lift_fresh",
    "aten::new_empty",
    "aten::new_empty_strided",
    "aten::resize_",
    "aten::result_type",
    "aten::set_",
    "aten::sparse_dim",
    "aten::squeeze_",
    "aten::swapaxes_",
    "aten::t_",
    "aten::transpose_",
    "aten::unsafe_chunk",
    "aten::unsafe_split",
    "aten::unsafe_split_with_sizes",
    "aten::unsqueeze_",
}


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
