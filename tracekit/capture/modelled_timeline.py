"""Host and device timelines of a recorded step and its repetitions, on a GPU that is not present."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tracekit.analyzers.hardware import GPU
from tracekit.analyzers.prediction import stream_layout
from tracekit.analyzers.prediction.host_costs import CLASSES, HostCosts
from tracekit.analyzers.prediction.simulate import simulate
from tracekit.analyzers.prediction.stream_layout import Issued
from tracekit.capture.host_op_counts import host_work
from tracekit.capture.modelled_kernels import ModelledKernel
from tracekit.capture.recording import Recording

Nanoseconds = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

QUEUED_GAP_NS = 1_000
_SYNC_CALL_NS = 1_000
_FSDP_GATHER = "c10d::_allgather_base_"
"""FSDP gathers weights on a separate stream."""


@dataclass(frozen=True)
class Timeline:
    """Times in nanoseconds, in arrays of shape (steps, slots + 1): the slots of the recording, then the
    synchronisation.

    Slots without device work have kernel times of -1.
    """

    host_start: Nanoseconds
    issued: Nanoseconds
    """When the call has done its work on the host and, if it has device work, has launched it."""
    host_end: Nanoseconds
    """End of the call; if the call waits for the device, the end of the wait."""
    kernel_start: Nanoseconds
    kernel_end: Nanoseconds

    @property
    def step_ns(self) -> int:
        """Duration of the last step. All steps take equally long."""
        return int(self.host_end[-1, -1] - self.host_start[-1, 0])


def lay_out(
    recording: Recording, kernels: list[ModelledKernel | None], gpu: GPU, host: HostCosts, steps: int
) -> Timeline:
    """Return the times of `steps` steps. `kernels` are those of `recording.calls`."""
    durations = np.array([*(kernel.duration_ns if kernel else 0 for kernel in kernels), 0])
    waits = np.array([*(bool(call.copies) for call in recording.calls), False])
    slots = np.array(recording.call, dtype=np.int64)
    costs_ns = np.array([host.op_us[name] * 1e3 for name in CLASSES])
    host_ns = np.maximum(np.rint(host_work(recording, kernels) @ costs_ns), 1)
    if any(call.message for call in recording.calls):
        return _on_two_streams(recording, host_ns, durations[slots], waits[slots], gpu, steps)
    times = simulate(
        np.tile(np.append(host_ns, _SYNC_CALL_NS), steps),
        np.tile(np.append(durations[slots], 0), steps),
        launch_latency_ns=gpu.launch_latency_us * 1e3,
        gap_ns=QUEUED_GAP_NS,
        sync=np.tile(np.append(waits[slots], True), steps),
    )
    returned = np.append(times.host_start[1:], times.latency_ns)
    shape = (steps, len(slots) + 1)
    return Timeline(
        host_start=times.host_start.reshape(shape),
        issued=times.host_end.reshape(shape),
        host_end=returned.reshape(shape),
        kernel_start=times.kernel_start.reshape(shape),
        kernel_end=times.kernel_end.reshape(shape),
    )


def _on_two_streams(
    recording: Recording, host_ns: Floats, durations: Nanoseconds, waits: npt.NDArray[np.bool_], gpu: GPU, steps: int
) -> Timeline:
    calls, slots = recording.calls, recording.call
    collective = np.array([at >= 0 and calls[at].message is not None for at in slots] + [False])
    early = np.array([at >= 0 and calls[at].name == _FSDP_GATHER for at in slots] + [False])
    width = len(slots) + 1
    issued = Issued(
        host=np.append(host_ns, _SYNC_CALL_NS),
        work=np.append(durations, 0).astype(np.float64),
        collective=collective,
        early=early,
        waits=np.append(np.array(recording.waits), -1),
        sync=np.append(waits, True),
    ).repeated(steps)
    times = stream_layout.lay_out(issued, launch_latency_ns=gpu.launch_latency_us * 1e3, gap_ns=QUEUED_GAP_NS)
    returned = np.append(times.host_start[1:], times.latency_ns)
    arrays = (times.host_start, times.host_end, returned, times.start, times.end)
    return Timeline(*(np.rint(each).astype(np.int64).reshape(steps, width) for each in arrays))
