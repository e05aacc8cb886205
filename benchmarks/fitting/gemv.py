"""Fits GEMMs that are not plain tiles: [gemm.one-row], [gemm.few], [gemm.unaligned], [gemm.int4] and
[gemm.rowwise] of cost/time/constants.toml.

    python -m benchmarks fitting.gemv [--shared DIRECTORY] [--dry-run]

One row: bf16 on A100, H100, H200 and L40S (aiconfigurator) and all types on our H200. The others: our H200.
"""

from collections import defaultdict
from collections.abc import Iterator

from benchmarks.fitting.constants import Asked, arguments, fit_and_write
from benchmarks.measurements import own, public
from benchmarks.measurements.own import Row
from tracekit.analyzers.cost import Product
from tracekit.analyzers.cost.time.gemm import kind

_SECTIONS = {
    "one row": "gemm.one-row",
    "few rows": "gemm.few",
    "unaligned": "gemm.unaligned",
    "int4": "gemm.int4",
    "rowwise": "gemm.rowwise",
}

_FEW_ROWS = 64


def main() -> None:
    asked = arguments(__doc__)
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in measured(asked):
        if isinstance(row.cost.work, Product):
            groups[_group(row, row.cost.work)].append(row)
    for name, section in _SECTIONS.items():
        fit_and_write(section, groups[name], lambda row: (row.source, row.gpu.id), writes=asked.write)


def _group(row: Row, shape: Product) -> str:
    few = shape.m <= _FEW_ROWS
    return "rowwise" if few and shape.row_scales and row.cost.precision == "fp8" else kind(row.cost, shape, row.gpu)


def measured(asked: Asked) -> Iterator[Row]:
    for row in own.rows():
        if row.cost.family == "gemm" and row.cost.precision != "int8":
            yield row
    if asked.shared.is_dir():
        yield from (row for row in public.products(public.folder(asked.shared), 250, 1) if row.cost.precision == "bf16")


if __name__ == "__main__":
    main()
