"""What the numbers of a run must satisfy on any machine. A number that does not raises ImpossibleError."""

import csv
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tracekit.analyzers.cost import hardware

ABOVE = 1.05
"""How far a rate may exceed its data sheet, whose clocks are rounded."""
_MOST_GAIN = 100.0
_LONGEST_US = 60e6


class ImpossibleError(Exception):
    """A number that is missing, or that no machine can give."""


@dataclass(frozen=True)
class Ended:
    """A command that ended as it should, and what it left."""

    out: Path
    folder: Path
    stdout: str
    gpu: bool

    def gain(self, name: str, value: float | None) -> None:
        """Check a speed-up. A CPU may lack the arithmetic for it."""
        least = 0.1 if self.gpu else 1e-4
        must(value is not None and least <= value <= _MOST_GAIN, f"{name} is {value} times as fast")


def must(holds: bool, sentence: str) -> None:
    if not holds:
        raise ImpossibleError(sentence)


def run(ended: Ended) -> None:
    """analysis.json of a run."""
    _analysis(json.loads((ended.folder / "analysis.json").read_bytes()), ended.gpu)


def printed_analysis(ended: Ended) -> None:
    """The analysis as JSON on stdout."""
    _analysis(json.loads(ended.stdout), ended.gpu)


def _analysis(analysis: Mapping[str, Any], gpu: bool) -> None:
    latency, timeline = analysis["latency"], analysis["timeline"]
    for name in ("unprofiled_us", "profiled_us"):
        must(latency[name] is None or 0 < latency[name] < _LONGEST_US, f"{name} is {latency[name]}")
    busy, wall = timeline["gpu_busy_us"] or 0, timeline["wall_us"]
    must(0 <= busy <= wall * 1.001, f"busy for {busy} of {wall} us")
    shares = sum(analysis["bound"].values())
    must(abs(shares - 1) < 0.02, f"the shares of the bounds sum to {shares}")
    if gpu:
        must(busy > 0 and bool(analysis["kernels"]), "nothing ran on the GPU")
        _rates(analysis["kernels"], analysis["source"]["roofs"])


def _rates(kernels: Iterable[Mapping[str, Any]], roofs: Mapping[str, Any] | None) -> None:
    must(roofs is not None, "the GPU has no roofs")
    peak = max(roofs["peaks_tflops"].values())
    for kernel in kernels:
        must(kernel["duration_us"] >= 0, f"{kernel['name']} takes {kernel['duration_us']} us")
        rate = (kernel["flops"] or 0) / max(kernel["duration_us"], 1e-3) / 1e6
        must(rate <= ABOVE * peak, f"{kernel['name']}: {rate:.0f} TFLOP/s of at most {peak}")


def verified(ended: Ended) -> None:
    """verify.json: each optimization was measured."""
    for result in json.loads((ended.folder / "verify.json").read_bytes())["results"]:
        must(not result["error"], f"{result['id']}: {result['error']}")
        ended.gain(result["id"], result["measured"]["expected"])
        must(0 < result["after"]["median_us"] < _LONGEST_US, f"{result['id']}: {result['after']}")


def gains(ended: Ended) -> None:
    """A list of gains on stdout."""
    for result in json.loads(ended.stdout.splitlines()[-1]):
        must(not result["error"], f"{result['id']}: {result['error']}")
        ended.gain(result["id"], result["gain"])


def rows(ended: Ended) -> None:
    """bench.csv or grid.csv: every measured row has a latency and a gain."""
    (path,) = (each for each in ended.folder.glob("*.csv"))
    with path.open(newline="", encoding="utf-8") as file:
        table = [row for row in csv.DictReader(file) if row.get("source", "measured") == "measured"]
    must(len(table) > 1, f"{path.name} has {len(table)} measured rows")
    for row in table:
        why = row.get("error") or row.get("refused")
        must(not why, f"{row.get('config') or row.get('apply')}: {why}")
        latency = float(row.get("latency_us") or float(row["latency_ns"]) / 1e3)
        must(0 < latency < _LONGEST_US, f"a latency of {latency} us")
        if row.get("speedup"):
            ended.gain(row.get("config") or row["apply"], float(row["speedup"]))


def calibrated(ended: Ended) -> None:
    """A calibration: rates that the GPU's data sheet allows."""
    found = json.loads((ended.folder / "calibration.json").read_bytes())
    for name, (low, median, high) in found["host_us"].items():
        must(0 < low <= median <= high < 1e5, f"host time of {name}: {median} us")
    if not ended.gpu:
        return
    gpu = hardware.find(found["gpu"])
    for precision, rate in found["sustained_tflops"].items():
        peak = gpu.peaks_tflops[precision]
        must(0.1 * peak < rate <= ABOVE * peak, f"{precision}: {rate} TFLOP/s of {peak}")
    copied = found["copies_gb_per_s"]["d2d"]
    must(0.1 * gpu.bandwidth_gbs < copied <= ABOVE * gpu.bandwidth_gbs, f"copies: {copied} GB/s")


def kernels(ended: Ended) -> None:
    """kernels.json of a run: times beside the ops that they replace, and rates below the roof."""
    timed = json.loads((ended.folder / "kernels.json").read_bytes())["kernels"]
    must(bool(timed), "no kernel was timed")
    for name, times in timed.items():
        ended.gain(name, times["before_ns"] / times["after_ns"])
        roof = times.get("roof_fraction", 0.0)
        must(0 <= roof <= 1.15, f"{name} runs at {roof:.2f} of the rate of a copy")


def memory(ended: Ended) -> None:
    """The peak of a run's memory on stdout."""
    found = json.loads(ended.stdout)
    devices = found.get("devices", [{"peak": found.get("peak_bytes")}])
    peaks = [each["peak"] or each["allocated"] for each in devices]
    must(0 < max(peaks) < 2**40, f"the peaks are {peaks} bytes")


def compared(ended: Ended) -> None:
    """A comparison on stdout, whose differences sum to that of the latency."""
    found = json.loads(ended.stdout)
    ended.gain("B", found["speedup"])
    total = sum(each["change_us"] for each in found["difference"])
    must(
        abs(total - found["change_us"]) <= 0.01 * found["a"]["latency_us"],
        f"{total} in place of {found['change_us']} us",
    )


def predicted(ended: Ended) -> None:
    """A prediction on stdout."""
    ended.gain("the prediction", json.loads(ended.stdout)["speedup"]["expected"])


def quantized(ended: Ended) -> None:
    """The relative errors of packed weights on stdout."""
    for line in ended.stdout.splitlines():
        for bits, error in json.loads(line).items():
            must(0 < error < {"int8": 0.03, "int4": 0.3}[bits], f"{bits}: a relative error of {error}")


def written(ended: Ended) -> None:
    """Files alone, or words on stdout."""
    must("Traceback" not in ended.stdout, ended.stdout[-300:])
