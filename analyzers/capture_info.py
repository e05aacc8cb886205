"""Metadata of a capture, stored under the key `tracekit` of a trace file that tracekit wrote.

Capture writes it, and the reader decodes it; nothing else is passed between them. It contains nothing about the
environment beyond the fields defined here.
"""

from typing import Any, Literal

import msgspec

from tracekit.analyzers.limits import Amount, Count, PositiveAmount


class Latency(msgspec.Struct, frozen=True):
    """Time of one step, in microseconds, without a profiler attached: median, 10th and 90th percentile."""

    median_us: PositiveAmount
    p10_us: PositiveAmount
    p90_us: PositiveAmount
    samples: Count


def single(latency_ms: float | None) -> Latency | None:
    """Return the latency of a step that was given as one number, in ms; None if it was not given."""
    if latency_ms is None:
        return None
    us = latency_ms * 1e3
    return Latency(us, us, us, samples=1)


RecordedOn = Literal["", "fake tensors", "cpu"]


class CaptureInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Settings and measurements of one capture. A missing measurement is None, "", or empty."""

    version: str
    source: Literal["measured", "modelled"]
    device: Literal["cuda", "cpu", "model"]
    recorded_on: RecordedOn = ""
    """Method by which a modelled run's ops were recorded: on fake tensors, or on the CPU with real ones."""
    without_compile: bool = False
    """Whether the program uses torch.compile, and its run is modelled without it."""
    gpu: str
    """The requested GPU, an id of gpus.toml or of `gpu_row`; "" if none was requested."""
    gpu_row: dict[str, Any] = {}
    """Fields of the requested GPU, as in a file for --gpu-file; empty if it is in gpus.toml."""
    device_name: str
    """The device that ran it, as its driver reports it; for a modelled run, the name of the GPU modelled."""
    driver: str = ""
    sm_clock_mhz: Count = 0
    memory_clock_mhz: Count = 0
    versions: dict[str, str] = {}
    model: str = ""
    workload: str = ""
    batch_size: Count = 0
    seq_len: Count = 0
    new_tokens: Count = 0
    dtype: str = ""
    """fp32, tf32, fp16 or bf16."""
    split: str = ""
    """How ranks share the model: data-parallel, tensor-parallel or fsdp; "" for one GPU."""
    ranks: Count = 0
    link: str = ""
    """The modelled link between the ranks: nvlink or ib."""
    attention: str = ""
    """eager, sdpa or flash."""
    weights: str = ""
    parameters: Count = 0
    weight_bytes: Count = 0
    buffer_bytes: Count = 0
    """Bytes of the model's tensors that are not parameters."""
    steps: Count = 0
    """Steps recorded in the trace."""
    latency: Latency | None = None
    """One step of the workload: unprofiled when measured, simulated when modelled."""
    phases: dict[str, Latency] = {}
    """Latency of parts of a step: time_to_first_token, time_between_tokens."""
    peak_memory_bytes: Count = 0
    host_op_us: Amount = 0.0
    """Host time per kernel-launching op of a modelled run; the next fields are its range on such machines and its
    source."""
    host_op_low_us: Amount = 0.0
    host_op_high_us: Amount = 0.0
    host_source: str = ""
