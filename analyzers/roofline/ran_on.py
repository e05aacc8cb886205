"""Which device ran the work, and whose roofs it is held against."""

from dataclasses import dataclass

import numpy as np

from tracekit.analyzers import hardware, problems
from tracekit.analyzers.attribution.items import Items
from tracekit.analyzers.hardware import GPU
from tracekit.analyzers.trace import DeviceProperties, Metadata


@dataclass(frozen=True)
class RanOn:
    device_name: str
    """"" where the trace does not say."""
    gpu: GPU | None
    found: tuple[problems.Problem, ...] = ()


def ran_on(metadata: Metadata, items: Items, named: GPU | None) -> RanOn:
    """The GPU that the trace says ran it (or was modelled); `named` only where the trace does not say which."""
    capture = metadata.capture
    if not items.on_device:
        return RanOn(capture.device_name if capture else "", None)
    device = _busiest(metadata, items)
    name = device.name if device else capture.device_name if capture else ""
    if capture and capture.source == "modelled" and capture.gpu:
        return RanOn(capture.device_name or name, hardware.of_capture(capture))
    if gpu := hardware.resolve(name, device.sms if device else 0, device.memory_bytes if device else 0):
        return RanOn(name, gpu)
    if named:
        return RanOn(name, named, (problems.problem("gpu-as-named", detail=named.name),))
    return RanOn(name, None, (problems.problem("unknown-gpu", detail=f' ("{name}")' if name else ""),))


def _busiest(metadata: Metadata, items: Items) -> DeviceProperties | None:
    """The device with the most work; the first of the trace where its index is not described."""
    ids, inverse = np.unique(items.device, return_inverse=True)
    busiest = int(ids[np.bincount(inverse, weights=items.busy).argmax()])
    described = [device for device in metadata.devices if device.name]
    return next((device for device in described if device.id == busiest), described[0] if described else None)
