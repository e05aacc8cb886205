"""Numbers that models read from tensors while they are built."""

from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class FakeRates(TorchFunctionMode):
    """Lets the list of a fake tensor be zeros. Models make rates of stochastic depth so, on which no shape depends."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.tolist and args[0].dim() == 1:
            return [0.0] * len(args[0])
        return func(*args, **(kwargs or {}))
