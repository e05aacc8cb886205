"""Hand-made traces: rows in any order, times in microseconds, defaults for what a test does not care about."""

from typing import Any

import msgspec
import pandas as pd

from tracekit.analyzers.trace import HOST, CaptureInfo, DeviceProperties, Metadata, Trace
from tracekit.analyzers.trace.trace import DEVICE, PROBLEMS

_TEXT = {"category": "", "name": "", "shapes": "", "dtypes": "", "values": "", "strides": ""}
_HOST_DEFAULTS = {"thread": 0, "correlation": -1, "external_id": -1, "sequence": -1, "forward_thread": -1, **_TEXT}
_DEVICE_DEFAULTS = dict.fromkeys((column.name for column in DEVICE.columns), -1) | {
    "category": "kernel",
    "name": "",
    "device": 0,
    "stream": 7,
    "occupancy": float("nan"),
}


class Handmade(msgspec.Struct):
    """Collects rows; `trace()` sorts them as a reader would."""

    host_rows: list[dict[str, Any]] = msgspec.field(default_factory=list)
    device_rows: list[dict[str, Any]] = msgspec.field(default_factory=list)

    def host(self, category: str, name: str, start_us: float, duration_us: float, **values: Any) -> "Handmade":
        times = {"start_ns": round(start_us * 1000), "duration_ns": round(duration_us * 1000)}
        self.host_rows.append({**_HOST_DEFAULTS, "category": category, "name": name, **times, **values})
        return self

    def device(self, name: str, start_us: float, duration_us: float, **values: Any) -> "Handmade":
        times = {"start_ns": round(start_us * 1000), "duration_ns": round(duration_us * 1000)}
        self.device_rows.append({**_DEVICE_DEFAULTS, "name": name, **times, **values})
        return self

    def launched(self, name: str, at_us: float, start_us: float, duration_us: float, **values: Any) -> "Handmade":
        """A kernel with its launching call, of 1 us on thread 0."""
        correlation = len(self.device_rows) + 1
        self.host("runtime", values.pop("call", "cudaLaunchKernel"), at_us, 1, correlation=correlation)
        return self.device(name, start_us, duration_us, correlation=correlation, **values)

    def trace(self, gpu: str = "NVIDIA H200", capture: CaptureInfo | None = None) -> Trace:
        threads = {row["thread"] for row in self.host_rows}
        return Trace(
            metadata=Metadata(
                format="kineto",
                devices=(DeviceProperties(0, gpu),) if gpu else (),
                threads=tuple(str(thread) for thread in sorted(threads)),
                capture=capture,
            ),
            host=_sorted(HOST, self.host_rows, ["thread", "start_ns", "duration_ns"], [True, True, False]),
            device=_sorted(DEVICE, self.device_rows, ["start_ns"], [True]),
            problems=PROBLEMS.empty(),
        )


def _sorted(table: Any, rows: list[dict[str, Any]], keys: list[str], ascending: list[bool]) -> pd.DataFrame:
    if not rows:
        return table.empty()
    frame = pd.DataFrame(rows).sort_values(keys, ascending=ascending, kind="stable")
    return table.frame({column.name: list(frame[column.name]) for column in table.columns})


def addmm(m: int, k: int, n: int, dtype: str = "float") -> dict[str, str]:
    """The recorded signature of aten::addmm(bias[n], a[m, k], b[k, n])."""
    return {
        "shapes": f"[[{n}],[{m},{k}],[{k},{n}],[],[]]",
        "dtypes": f'["{dtype}","{dtype}","{dtype}","Scalar","Scalar"]',
        "values": '["","","","1","1"]',
    }
