"""Fits the constants of fused attention, [attention.*] in analyzers/cost/time/constants.toml.

    python -m benchmarks fitting.attention [--shared DIRECTORY] [--dry-run]

FlashAttention-2 on A100 and L40S (aiconfigurator) and our H200; FlashAttention-3 on H100 and H200
(aiconfigurator); cuDNN and memory-efficient attention on our H200. Prefill and decode, each GPU and each source
weigh the same.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterator

from benchmarks.fitting.constants import Asked, arguments, fit_and_write
from benchmarks.measurements import own, public
from benchmarks.measurements.own import Row
from tracekit.analyzers.cost import Attention
from tracekit.analyzers.cost.time import estimate
from tracekit.analyzers.cost.time.attention import backend

GIVEN = {"cudnn": ("softmax_cycles", "l2", "backward", "start_us")}
"""Constants that are not fitted: the rate of exponentials, and what the rows of one backend do not determine."""


def main() -> None:
    asked = arguments(__doc__)
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in measured(asked):
        groups[backend(row.cost, row.gpu)].append(row)
    for name in estimate.constants()["attention"]:
        fit_and_write(f"attention.{name}", groups[name], kind, GIVEN.get(name, ()), asked.write)


def measured(asked: Asked) -> Iterator[Row]:
    yield from (row for row in own.rows() if row.cost.family == "attention")
    if asked.shared.is_dir():
        yield from public.attentions(public.folder(asked.shared), 250, 1)


def kind(row: Row) -> Hashable:
    few = isinstance(row.cost.work, Attention) and row.cost.work.queries == 1
    return row.source, row.gpu.id, few


if __name__ == "__main__":
    main()
