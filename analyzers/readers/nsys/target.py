"""Read the machine of a report: its GPUs, and the start time of the recording."""

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.readers.nsys.database import MISSING, Database
from tracekit.analyzers.readers.nsys.identity import pid_of
from tracekit.analyzers.trace import DeviceProperties

Ints = npt.NDArray[np.int64]

_GPUS = "TARGET_INFO_GPU"
_CUDA_DEVICES = "TARGET_INFO_CUDA_DEVICE"
_SESSION = "TARGET_INFO_SESSION_START_TIME"


def devices(database: Database) -> tuple[DeviceProperties, ...]:
    sizes = dict.fromkeys(("smCount", "totalMemory", "computeMajor", "computeMinor"), 0)
    rows = database.read(_GPUS, {"id": -1}, sizes, texts=("name",))
    columns = (rows[name].tolist() for name in ("id", "name", *sizes))
    return tuple(
        DeviceProperties(id, name, sms, (major, minor), memory)
        for id, name, sms, memory, major, minor in zip(*columns, strict=True)
    )


def gpu_of(database: Database, device: Ints, global_pid: Ints) -> Ints:
    """Map each process's device number to a GPU; a number that the report does not map stays."""
    rows = database.read(_CUDA_DEVICES, {"gpuId": -1, "cudaId": -1, "pid": -1})
    known = pd.MultiIndex.from_arrays([rows["pid"], rows["cudaId"]])
    gpus = pd.Series(rows["gpuId"], index=known)[~known.duplicated()]
    mapped = gpus.reindex(pd.MultiIndex.from_arrays([pid_of(global_pid), device]), fill_value=-1).to_numpy()
    return np.where(mapped >= 0, mapped, device)


def epoch_ns(database: Database) -> int:
    """Return the time at which the report's clock was 0, in ns since 1970; 0 if unknown."""
    rows = database.read(_SESSION, {"utcEpochNs": 0}, varying={"systemClockNs": 0})
    if not len(rows["utcEpochNs"]):
        return 0
    epoch = int(rows["utcEpochNs"][0]) - int(rows["systemClockNs"][0])
    return epoch if abs(epoch) < -MISSING else 0
