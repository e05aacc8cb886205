"""What a tracekit capture says about itself: the `tracekit` key of a trace file that we wrote.

Capture writes it, the reader decodes it, and nothing else passes between them. It never holds anything of the
environment beyond what is named here.
"""

from typing import Any, Literal

import msgspec


class Latency(msgspec.Struct, frozen=True):
    """Time of one step, in microseconds, without a profiler attached: median, 10th and 90th percentile."""

    median_us: float
    p10_us: float
    p90_us: float
    samples: int


class CaptureInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Settings and measurements of one capture. A missing measurement is None, "", or empty."""

    version: str
    source: Literal["measured", "modelled"]
    device: Literal["cuda", "cpu", "model"]
    gpu: str
    """The GPU asked for, an id of gpus.toml or of `gpu_row`; "" when none was."""
    gpu_row: dict[str, Any] = {}
    """The GPU asked for where it is not in gpus.toml: its fields, as --gpu-file takes them."""
    device_name: str
    """The device that ran it, as its driver reports it; for a modelled run, the name of the GPU modelled."""
    driver: str = ""
    sm_clock_mhz: int = 0
    memory_clock_mhz: int = 0
    versions: dict[str, str] = {}
    model: str = ""
    workload: str = ""
    batch_size: int = 0
    seq_len: int = 0
    new_tokens: int = 0
    dtype: str = ""
    """fp32, tf32, fp16 or bf16."""
    attention: str = ""
    """eager, sdpa or flash."""
    weights: str = ""
    parameters: int = 0
    weight_bytes: int = 0
    buffer_bytes: int = 0
    """Of the model's tensors that are no parameters."""
    steps: int = 0
    """Steps recorded in the trace."""
    latency: Latency | None = None
    """One step of the workload: unprofiled when measured, simulated when modelled."""
    phases: dict[str, Latency] = {}
    """The same for parts of a step: time_to_first_token, time_between_tokens."""
    peak_memory_bytes: int = 0
    host_op_us: float = 0.0
    """Host time a kernel-launching op, of a modelled run: with it, what it may be on such machines, and its source."""
    host_op_low_us: float = 0.0
    host_op_high_us: float = 0.0
    host_source: str = ""
