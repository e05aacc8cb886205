"""Finds the device that ran the work, and the GPU whose roofs apply."""

import msgspec
import numpy as np

from tracekit.analyzers import hardware
from tracekit.analyzers.attribution.work_items import WorkItems
from tracekit.analyzers.hardware import GPU
from tracekit.analyzers.problems import Problem, problem
from tracekit.analyzers.trace import DeviceProperties, Metadata


class RunDevice(msgspec.Struct, frozen=True):
    """The device that ran the work."""

    name: str
    """Name that the driver reports; "" if it is not recorded."""
    gpu: GPU | None
    """None if it is unknown, or a CPU."""
    problems: tuple[Problem, ...] = ()


def run_device(metadata: Metadata, items: WorkItems, named: GPU | None) -> RunDevice:
    """Return the device that the trace names (or for which it was modelled); `named` is used only if it names none."""
    capture = metadata.capture
    if not items.on_device:
        return RunDevice(capture.device_name if capture else "", None)
    device = _busiest(metadata, items)
    name = device.name if device else capture.device_name if capture else ""
    if capture and capture.source == "modelled" and capture.gpu:
        return RunDevice(capture.device_name or name, hardware.of_capture(capture))
    if gpu := hardware.resolve(name, device.sms if device else 0, device.memory_bytes if device else 0):
        return RunDevice(name, gpu)
    if named:
        return RunDevice(name, named, (problem("gpu-as-named", detail=named.name),))
    return RunDevice(name, None, (problem("unknown-gpu", detail=f' ("{name}")' if name else ""),))


def _busiest(metadata: Metadata, items: WorkItems) -> DeviceProperties | None:
    """Return the device with the most work; the first named one if that device is not described in the trace."""
    ids, inverse = np.unique(items.device, return_inverse=True)
    busiest = int(ids[np.bincount(inverse, weights=items.busy).argmax()])
    described = [device for device in metadata.devices if device.name]
    return next((device for device in described if device.id == busiest), described[0] if described else None)
