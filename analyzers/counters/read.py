"""A report's launches as the table COUNTERS."""

import re

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.counters import csv_lines, details_page, metrics, raw_page
from tracekit.analyzers.counters.counters_table import COUNTERS
from tracekit.analyzers.counters.launches import BLOCK, DEVICE, GRID, IDENTITY, NAME, STREAM, Launches

_NUMBER = re.compile(r"\d+")
_LONGEST_NS = 86_400e9


def launches_of(data: bytes) -> Launches:
    """The launches of a CSV of either page. Raises ValueError without a header."""
    lines = csv_lines.split(data, lambda name: name in ("ID", *IDENTITY) or metrics.wanted(name))
    page = details_page.launches if lines.of_details else raw_page.launches
    return page(lines, metrics.wanted)


def counters(launches: Launches) -> pd.DataFrame:
    """The table COUNTERS."""
    identity, found = launches.identity, launches.metrics
    flops, moved = metrics.flops_by_pipe(found), metrics.memory_bytes(found)
    return COUNTERS.frame(
        {
            "name": identity[NAME],
            "grid": identity[GRID],
            "block": identity[BLOCK],
            "blocks": _product(identity[GRID]),
            "threads_per_block": _product(identity[BLOCK]),
            "device": _integer(identity[DEVICE]),
            "stream": _integer(identity[STREAM]),
            "registers": _whole(metrics.column(found, "launch__registers_per_thread"), limit=1e6),
            "duration_ns": _whole(metrics.column(found, "gpu__time_duration.sum") * 1e9, limit=_LONGEST_NS),
            **{f"{pipe}_flops": flops[pipe] for pipe in metrics.PIPES},
            "flops": flops["all"],
            "precision": metrics.main_precision(found),
            "dram_read_bytes": moved["read"],
            "dram_write_bytes": moved["write"],
            "dram_bytes": moved["all"],
            "l2_bytes": moved["l2"],
            "dram_throughput": _of_peak(found, "gpu__dram_throughput", "dram__throughput"),
            "sm_throughput": _of_peak(found, "sm__throughput"),
            "occupancy": metrics.share(found, "sm__warps_active.avg.pct_of_peak_sustained_active"),
        }
    )


def _of_peak(found: pd.DataFrame, *names: str) -> npt.NDArray[np.float64]:
    return metrics.share(found, *(f"{name}.avg.pct_of_peak_sustained_elapsed" for name in names))


def _product(texts: pd.Series) -> list[int]:
    """Of a size such as "(8, 36, 1)"; -1 for anything else."""
    found = {text: [int(number) for number in _NUMBER.findall(text)] for text in texts.unique()}
    known = {text: sizes[0] * sizes[1] * sizes[2] if _is_size(sizes) else -1 for text, sizes in found.items()}
    return [known[text] for text in texts]


def _is_size(sizes: list[int]) -> bool:
    return len(sizes) == 3 and all(0 < size < 1 << 31 for size in sizes) and sizes[0] * sizes[1] * sizes[2] < 1 << 62


def _integer(texts: pd.Series) -> list[int]:
    return [int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1 for text in texts]


def _whole(values: npt.NDArray[np.float64], limit: float) -> npt.NDArray[np.int64]:
    """-1 for what is absent, negative, or not below the limit."""
    usable = np.isfinite(values) & (values >= 0) & (values < limit)
    return np.where(usable, np.rint(np.where(usable, values, 0.0)), -1).astype(np.int64)
