"""Numbers that models read from tensors while they are built."""

from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class FakeRates(TorchFunctionMode):
    """Lets the numbers of a fake tensor be zeros: models list rates of stochastic depth, on which no shape depends."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.item and args[0].dtype.is_floating_point:
            return 0.0
        return func(*args, **(kwargs or {}))
