"""The place of a process in a distributed job."""

import json
import os
from dataclasses import dataclass
from typing import Any

from tracekit.capture.packages import require


@dataclass(frozen=True)
class Place:
    """The place of this process, from the environment variables that torchrun sets."""

    rank: int
    world_size: int
    node: int


def place() -> Place | None:
    """Return the place of this process; None if it is the only one."""
    try:
        rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        return Place(rank, world_size, int(os.environ.get("GROUP_RANK", 0))) if world_size > 1 else None
    except (KeyError, ValueError):
        return None


def write_place(profiler: Any) -> None:
    """Add the rank, the world size and the process groups to a trace that is being recorded.

    torch writes them only if the groups exist when the recording starts. A script that is recorded from its first line
    creates them later.
    """
    here = place()
    known = {**_of_torch(), **({"rank": here.rank, "world_size": here.world_size, "node": here.node} if here else {})}
    if known:
        profiler.add_metadata_json("distributedInfo", json.dumps(known))


def _of_torch() -> dict[str, Any]:
    distributed = require("torch.distributed")
    if not (distributed.is_available() and distributed.is_initialized()):
        return {}
    known = {"backend": distributed.get_backend(), "rank": distributed.get_rank()}
    groups: list[dict[str, Any]] = getattr(distributed.distributed_c10d, "_get_all_pg_configs", list)()
    return {**known, "world_size": distributed.get_world_size(), "pg_config": groups}
