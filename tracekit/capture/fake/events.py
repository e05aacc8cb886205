"""Generates the events of a modelled run, as torch.profiler records those of a real run. Each is marked as modelled."""

from collections.abc import Iterator
from functools import cached_property
from itertools import groupby
from typing import Any

import msgspec

from tracekit.analyzers.attribute import ACCUMULATED
from tracekit.analyzers.cost import GPU, Message, tensors
from tracekit.analyzers.trace import MEMORY, RECORDED_AS, ranges
from tracekit.capture.fake.recording import OpCall, Recording
from tracekit.capture.fake.timeline import ModelledKernel, Timeline

Event = dict[str, Any]

PROCESS, FORWARD_THREAD, BACKWARD_THREAD = 1, 1, 2
DEVICE, STREAM, LINK_STREAM = 0, 7, 20

GROUP = "0"
"""Name of the group of all ranks, as torch names the first one."""
_CUDA = 1
"""The number of this device type in torch's events."""
_CALLS = {"nvidia": "cuda", "amd": "hip"}


def events(
    recording: Recording, kernels: list[ModelledKernel | None], timeline: Timeline, gpu: GPU, *, marked: bool = True
) -> Iterator[Event]:
    """Yield every event of every step: ranges, ops, runtime calls, device work, and the flows between the last two.

    Each repetition of the recording is `marked` as a step, on the host and on the device.
    """
    yield from _track_names(gpu)
    for index in range(len(timeline.host_start)):
        step = _Step(recording, kernels, timeline, gpu, index)
        if marked:
            yield from step.marks()
        yield from step.ranges()
        yield from step.backward_nodes()
        yield from step.ops()
        yield from step.gradients()
        yield from step.device_work()
        if index == 0:
            yield from step.memory()
        yield from step.end()


class _Step:
    """The events of one step. Ids are numbered consecutively: slot n of step s has the id s * stride + n + 1."""

    def __init__(
        self, recording: Recording, kernels: list[ModelledKernel | None], timeline: Timeline, gpu: GPU, index: int
    ) -> None:
        self._recording, self._kernels, self._index = recording, kernels, index
        self._launch_ns = round(gpu.launch_call_us * 1e3)
        self._prefix = _CALLS[gpu.vendor]
        self._start, self._end = timeline.host_start[index].tolist(), timeline.host_end[index].tolist()
        self._issued = timeline.issued[index].tolist()
        self._kernel_start, self._kernel_end = (
            timeline.kernel_start[index].tolist(),
            timeline.kernel_end[index].tolist(),
        )
        self._first_id = index * len(self._start) + 1
        self._first_sequence = index * (1 + max(recording.sequence, default=0))

    @cached_property
    def _call_args(self) -> list[dict[str, Any]]:
        return [_recorded_inputs(call) for call in self._recording.calls]

    def marks(self) -> Iterator[Event]:
        """Yield the step as seen by the host and by the device."""
        name, last = ranges.step(self._index), len(self._start) - 1
        yield _host_event("user_annotation", name, self._start[0], self._end[last], args=self._ids(last))
        starts = [start for start in self._kernel_start if start >= 0]
        if starts:
            yield _device_event("gpu_user_annotation", name, min(starts), max(self._kernel_end), self._ids(last))

    def ranges(self) -> Iterator[Event]:
        for part in self._recording.ranges:
            times = self._start[part.opens], self._end[part.closes]
            yield _host_event("user_annotation", part.name, *times, args=self._ids(part.opens))

    def backward_nodes(self) -> Iterator[Event]:
        """Yield the engine's evaluation of each autograd node, around the ops that it runs."""
        slots = [slot for slot, node in enumerate(self._recording.node) if node >= 0]
        for number, group in groupby(slots, key=self._recording.node.__getitem__):
            members, node = list(group), self._recording.nodes[number]
            args = self._sequence(node.sequence, FORWARD_THREAD)
            name = f"autograd::engine::evaluate_function: {node.name}"
            yield _host_event("cpu_op", name, self._start[members[0]], self._end[members[-1]], args, BACKWARD_THREAD)

    def ops(self) -> Iterator[Event]:
        recording = self._recording
        for slot, call in enumerate(recording.call):
            if call >= 0:
                args = self._ids(slot) | self._sequence(recording.sequence[slot], 0) | self._call_args[call]
                times = self._start[slot], self._end[slot]
                yield _host_event("cpu_op", recording.calls[call].name, *times, args, self._thread(slot))

    def gradients(self) -> Iterator[Event]:
        """Yield the accumulation of each parameter's gradient, at the end of the op that made it."""
        for gradient in self._recording.gradients:
            at = self._end[gradient.slot - 1]
            shape = {"Input Dims": [list(gradient.shape)], "Input type": [gradient.element_type]}
            yield _host_event("cpu_op", ACCUMULATED, at, at, self._ids(gradient.slot - 1) | shape, BACKWARD_THREAD)

    def device_work(self) -> Iterator[Event]:
        """Yield launches, kernels, copies, waits for a copy, and the flow from each launch to its kernel."""
        for slot, call in enumerate(self._recording.call):
            kernel = self._kernels[call] if call >= 0 else None
            if kernel:
                described = self._recording.calls[call]
                if described.message:
                    yield self._collective(slot, described.message)
                yield from self._launch(slot, kernel, described)
                if described.copies:
                    yield self._wait(f"{self._prefix}StreamSynchronize", slot, self._issued[slot])

    def _collective(self, slot: int, message: Message) -> Event:
        """Return the event with which c10d records a collective, inside its op."""
        call = self._recording.calls[self._recording.call[slot]]
        element = tensors.find(call.element_type)
        count = message.bytes // (element.bytes if element else 1)
        part = count // message.ranks
        sent, received = {"all-gather": (part, count), "reduce-scatter": (count, part)}.get(
            message.kind, (count, count)
        )
        numbers = self._recording.collectives
        details = {
            "Collective name": message.kind.replace("-", "_"),
            "In msg nelems": sent,
            "Out msg nelems": received,
            "dtype": element.name if element else call.element_type,
            "Group size": message.ranks,
            "Process Group Name": GROUP,
            "Seq": self._index * len(numbers) + numbers.index(slot),
        }
        times = self._start[slot], self._end[slot]
        return _host_event("cpu_op", RECORDED_AS, *times, self._ids(slot) | details, self._thread(slot))

    def _launch(self, slot: int, kernel: ModelledKernel, described: OpCall) -> Iterator[Event]:
        copies, stream = bool(described.copies), LINK_STREAM if described.message else STREAM
        thread, ids = self._thread(slot), self._ids(slot) | {"correlation": self._first_id + slot}
        launched = self._issued[slot] if copies else min(self._end[slot], self._kernel_start[slot])
        begun = max(self._start[slot], self._issued[slot] - self._launch_ns)
        call = f"{self._prefix}{'MemcpyAsync' if copies else 'LaunchKernel'}"
        times = self._kernel_start[slot], self._kernel_end[slot]
        yield _host_event("cuda_runtime", call, begun, launched, ids, thread)
        size = {"bytes": described.copied_bytes} if copies else {}
        yield _device_event("gpu_memcpy" if copies else "kernel", kernel.name, *times, ids | size, stream)
        yield _flow("s", self._first_id + slot, PROCESS, thread, begun)
        yield _flow("f", self._first_id + slot, DEVICE, stream, times[0])

    def memory(self) -> Iterator[Event]:
        """Yield allocations and frees of one step; the other steps repeat them."""
        for move in self._recording.moves:
            slot = min(move.slot, len(self._start) - 1)
            args = {"Addr": move.block, "Bytes": move.bytes, "Total Allocated": move.live_bytes}
            yield {
                "ph": "i",
                "cat": "cpu_instant_event",
                "s": "t",
                "name": MEMORY,
                "pid": PROCESS,
                "tid": self._thread(slot),
                "ts": self._start[slot] / 1000,
                "args": {**args, "Device Type": _CUDA, "Device Id": DEVICE, "modelled": True},
            }

    def end(self) -> Iterator[Event]:
        """Yield the synchronisation that ends the step."""
        last = len(self._start) - 1
        yield self._wait(f"{self._prefix}DeviceSynchronize", last, self._start[last])

    def _wait(self, name: str, slot: int, start: int) -> Event:
        args = {"correlation": self._first_id + slot} if name.endswith("DeviceSynchronize") else {}
        return _host_event("cuda_runtime", name, start, self._end[slot], args, self._thread(slot))

    def _ids(self, slot: int) -> dict[str, Any]:
        return {"External id": self._first_id + slot}

    def _sequence(self, sequence: int, forward_thread: int) -> dict[str, Any]:
        if sequence < 0:
            return {}
        return {"Sequence number": self._first_sequence + sequence, "Fwd thread id": forward_thread}

    def _thread(self, slot: int) -> int:
        in_backward = slot < len(self._recording.node) and self._recording.node[slot] >= 0
        return BACKWARD_THREAD if in_backward else FORWARD_THREAD


def _recorded_inputs(call: OpCall) -> dict[str, Any]:
    return {
        "Input Dims": msgspec.Raw(call.shapes.encode()),
        "Input type": msgspec.Raw(call.dtypes.encode()),
        "Input Strides": msgspec.Raw(call.strides.encode()),
        "Concrete Inputs": msgspec.Raw(call.values.encode()),
    }


def _host_event(
    category: str, name: str, start: int, end: int, args: dict[str, Any], thread: int = FORWARD_THREAD
) -> Event:
    return _complete(category, name, PROCESS, thread, start, end, args)


def _device_event(category: str, name: str, start: int, end: int, ids: dict[str, Any], stream: int = STREAM) -> Event:
    place = {"device": DEVICE, "context": 1, "stream": stream}
    return _complete(category, name, DEVICE, stream, start, end, ids | place)


def _complete(category: str, name: str, process: int, thread: int, start: int, end: int, args: dict[str, Any]) -> Event:
    """Return a complete event. Times are whole nanoseconds; as microseconds they are exact to three decimals."""
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": process,
        "tid": thread,
        "ts": start / 1000,
        "dur": (end - start) / 1000,
        "args": {**args, "modelled": True},
    }


def _flow(kind: str, number: int, process: int, thread: int, time: int) -> Event:
    """Return one end of an arrow. Viewers merge the arguments of both ends, so only one has them."""
    event = {"ph": kind, "id": number, "pid": process, "tid": thread, "ts": time / 1000, "cat": "ac2g", "name": "ac2g"}
    return event | ({"bp": "e"} if kind == "f" else {"args": {"modelled": True}})


def _track_names(gpu: GPU) -> Iterator[Event]:
    names = (
        ("process_name", PROCESS, 0, "python (modelled)"),
        ("process_name", DEVICE, 0, f"{gpu.name} (modelled)"),
        ("thread_name", PROCESS, FORWARD_THREAD, "main thread (modelled)"),
        ("thread_name", PROCESS, BACKWARD_THREAD, "autograd thread (modelled)"),
        ("thread_name", DEVICE, STREAM, f"stream {STREAM} (modelled)"),
    )
    for kind, process, thread, name in names:
        yield {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name, "modelled": True}}
