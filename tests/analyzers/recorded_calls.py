"""Runs torch code on meta tensors, and records its ops as a profiler would, with torch's own counts for comparison."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from tracekit.analyzers.cost import Cost, cost_of_signature

CPP_NAMES = {
    torch.float32: "float",
    torch.float64: "double",
    torch.float16: "c10::Half",
    torch.bfloat16: "c10::BFloat16",
    torch.int64: "long int",
    torch.int32: "int",
    torch.int16: "short int",
    torch.int8: "signed char",
    torch.uint8: "unsigned char",
    torch.bool: "bool",
    torch.complex64: "c10::complex<float>",
    torch.float8_e4m3fn: "c10::Float8_e4m3fn",
}
SCALAR_TYPES = {
    torch.int32: 3,
    torch.int64: 4,
    torch.float16: 5,
    torch.float32: 6,
    torch.float64: 7,
    torch.complex64: 9,
    torch.bool: 11,
    torch.bfloat16: 15,
}


@dataclass(frozen=True)
class Recorded:
    """A call as a trace records it, and the bytes of its input and output tensors."""

    name: str
    shapes: str
    dtypes: str
    values: str
    input_bytes: int
    output_bytes: int

    def cost(self, **lists: Any) -> Cost:
        cost = cost_of_signature(self.name, self.shapes, self.dtypes, self.values, **lists)
        assert cost is not None, f"{self.name} {self.shapes} {self.dtypes} {self.values}"
        return cost


def record(run: Callable[[], object]) -> list[Recorded]:
    """Return the ops that `run` dispatches."""
    with _Recorder() as recorder:
        run()
    return recorder.calls


def record_one(run: Callable[[], object]) -> Recorded:
    """Return the last op that `run` dispatches. Those before it make its inputs."""
    return record(run)[-1]


def counted_flops(run: Callable[[], object]) -> int:
    """Return the FLOPs by torch's own counter."""
    with FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


def meta(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def nbytes(tree: object) -> int:
    return sum(leaf.nbytes for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor))


class _Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Recorded] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        schema = func._schema.arguments
        inputs = [*args, *(kwargs.get(argument.name, argument.default_value) for argument in schema[len(args) :])]
        columns = zip(*map(_entry, inputs), strict=True)
        shapes, dtypes, values = (json.dumps(column) for column in columns)
        self.calls.append(Recorded(func._schema.name, shapes, dtypes, values, nbytes((args, kwargs)), nbytes(result)))
        return result


def _entry(value: object) -> tuple[list[Any], str, str]:
    """Return the dims, type and concrete value of an argument."""
    if isinstance(value, torch.Tensor):
        return list(value.shape), CPP_NAMES[value.dtype], ""
    if isinstance(value, list | tuple) and value and isinstance(value[0], torch.Tensor):
        return [list(item.shape) for item in value], "TensorList", ""
    if isinstance(value, list | tuple) and all(isinstance(item, int | float) for item in value):
        return [], "ScalarList", str(list(value))
    if isinstance(value, torch.dtype):
        return [], "Scalar", str(SCALAR_TYPES[value])
    if isinstance(value, bool | int | float):
        return [], "Scalar", str(value)
    return [], "", ""
