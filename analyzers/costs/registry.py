"""The registry of cost formulas by op."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from tracekit.analyzers.costs.arguments import Arguments
from tracekit.analyzers.costs.call import Access, Cost, Family
from tracekit.analyzers.costs.dtypes import DType
from tracekit.analyzers.costs.tensors import Tensor, total_bytes
from tracekit.analyzers.costs.work import Work

Formula = Callable[[Arguments], Cost | None]

FORMULAS: dict[str, Formula] = {}


class DuplicateFormulaError(ValueError):
    """Two formulas are registered for one op."""


def costs(*names: str, **bound: Any) -> Callable[[Callable[..., Cost | None]], Callable[..., Cost | None]]:
    """Register a formula for ops; `bound` are keyword arguments that it is called with."""

    def register(formula: Callable[..., Cost | None]) -> Callable[..., Cost | None]:
        for name in names:
            if name in FORMULAS:
                raise DuplicateFormulaError(f"{name} has a formula already")
            FORMULAS[name] = partial(formula, **bound) if bound else formula
        return formula

    return register


def moves(
    family: Family,
    flops: int,
    reads: Iterable[Tensor | None],
    writes: Iterable[Tensor | None],
    dtype: DType,
    weight: Tensor | None = None,
    work: Work | None = None,
    access: Access = "linear",
    row: int = 0,
    run: int = 0,
    shared: Iterable[Tensor | None] = (),
    shared_results: Iterable[Tensor | None] = (),
    estimated: bool = False,
) -> Cost:
    """Return the cost of reading and writing whole tensors with arithmetic in `dtype`. `shared` are the tensors of
    `reads`, other than the weight, that do not grow with the batch; `shared_results` those of `writes`."""
    return Cost(
        flops=flops,
        read_bytes=total_bytes(reads),
        write_bytes=total_bytes(writes),
        family=family,
        precision=dtype.precision,
        weight_bytes=weight.bytes if weight else 0,
        work=work,
        access=access,
        row=row,
        run=run,
        shared_read=total_bytes(shared),
        shared_write=total_bytes(shared_results),
        estimated=estimated,
    )
