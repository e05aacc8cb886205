"""Simulates a job of many ranks in one process with torch's fake process group, whose collectives do nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tracekit.capture.packages import require
from tracekit.capture.parallel.split import Split


@contextmanager
def fake_world(split: Split | None) -> Iterator[Any]:
    """Yield the mesh of the ranks, of which this process is rank 0; None for one GPU.

    Must be entered before FakeTensorMode, in which a mesh would contain no numbers.
    """
    if split is None:
        yield None
        return
    distributed = require("torch.distributed")
    store = require("torch.testing._internal.distributed.fake_pg").FakeStore()
    distributed.init_process_group("fake", store=store, rank=0, world_size=split.ranks)
    try:
        yield require("torch.distributed.device_mesh").init_device_mesh("cpu", (split.ranks,))
    finally:
        distributed.destroy_process_group()
