"""Finds the memory of a tensor, which may wrap other tensors."""

import torch

_COMPRESSED = {
    torch.sparse_csr: ("crow_indices", "col_indices"),
    torch.sparse_bsr: ("crow_indices", "col_indices"),
    torch.sparse_csc: ("ccol_indices", "row_indices"),
    torch.sparse_bsc: ("ccol_indices", "row_indices"),
}


def parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Return the dense tensors that hold the values: those of a sparse tensor, the tensor inside torch.func's wrappers,
    or the tensor itself."""
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    if tensor.layout is torch.sparse_coo:
        return [tensor._values(), tensor._indices()]
    if tensor.layout in _COMPRESSED:
        return [tensor.values(), *(getattr(tensor, name)() for name in _COMPRESSED[tensor.layout])]
    return [tensor]


def storages(tensor: torch.Tensor) -> list[torch.UntypedStorage]:
    return [each.untyped_storage() for each in parts(tensor)]


def elements_of(tensor: torch.Tensor) -> int:
    """Return the number of stored values."""
    return parts(tensor)[0].numel()


def bytes_of(tensor: torch.Tensor) -> int:
    return sum(each.numel() * each.element_size() for each in parts(tensor))
