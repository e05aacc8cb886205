"""Host and device timelines of a recorded step, repeated, on a GPU that is not here."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from analyzers import ranges
from analyzers.hardware import GPU
from analyzers.prediction.simulate import simulate
from tracekit.capture.modelled_kernels import ModelledKernel
from tracekit.capture.recording import Recording

Nanoseconds = npt.NDArray[np.int64]

QUEUED_GAP_NS = 1_000
_SYNC_CALL_NS = 1_000
LAUNCH_CALL = 0.5
"""Of the time from a launch call to the kernel's start, the part that the call itself takes; it ends its op."""

_LAUNCHING_OP = 0.36
_BACKWARD_OP = 0.8
_OTHER_OP = 0.03
_MODULE_CALL = 0.78
_RANGE_END = 0.01
"""Host time in parts of that of an average kernel-launching op of GPT-2, all around it included. Fitted to the steps of
five models on an H200's host, where GPT-2's is 21 us: 8 us an op that launches, 16 us a call of a module."""


@dataclass(frozen=True)
class Timeline:
    """Times in nanoseconds, arrays of (steps, slots + 1): the slots of the recording, and the synchronisation after.

    Slots without device work have kernel times of -1.
    """

    host_start: Nanoseconds
    host_end: Nanoseconds
    """Including the wait, for calls that wait for the device."""
    kernel_start: Nanoseconds
    kernel_end: Nanoseconds

    @property
    def step_ns(self) -> int:
        """Duration of the last step, which is that of any step."""
        return int(self.host_end[-1, -1] - self.host_start[-1, 0])


def lay_out(
    recording: Recording, kernels: list[ModelledKernel | None], gpu: GPU, host_op_us: float, steps: int
) -> Timeline:
    """`kernels` are those of `recording.calls`; `host_op_us` is the host time of an average kernel-launching op of
    GPT-2, all else on the host included."""
    durations = np.array([*(kernel.duration_ns if kernel else 0 for kernel in kernels), 0])
    waits = np.array([*(call.reads_back for call in recording.calls), False])
    slots = np.array(recording.call, dtype=np.int64)
    host = np.maximum(np.rint(_host_weights(recording, durations[slots]) * host_op_us * 1e3), 1)
    times = simulate(
        np.tile(np.append(host, _SYNC_CALL_NS), steps),
        np.tile(np.append(durations[slots], 0), steps),
        launch_latency_ns=gpu.launch_us * 1e3 * (1 - LAUNCH_CALL),
        gap_ns=QUEUED_GAP_NS,
        sync=np.tile(np.append(waits[slots], True), steps),
    )
    returned = np.append(times.host_start[1:], times.latency_ns)
    shape = (steps, len(slots) + 1)
    return Timeline(
        host_start=times.host_start.reshape(shape),
        host_end=returned.reshape(shape),
        kernel_start=times.kernel_start.reshape(shape),
        kernel_end=times.kernel_end.reshape(shape),
    )


def _host_weights(recording: Recording, kernel_ns: Nanoseconds) -> npt.NDArray[np.float64]:
    slots, backward = np.array(recording.call), np.array(recording.node) >= 0
    launching = np.where(backward, _BACKWARD_OP, _LAUNCHING_OP)
    weight = np.where(slots < 0, _RANGE_END, np.where(kernel_ns > 0, launching, _OTHER_OP))
    modules = [each.opens for each in recording.ranges if (ranges.parse(each.name) or ("",))[0] == "module"]
    weight[modules] = _MODULE_CALL
    return weight
