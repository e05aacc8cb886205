"""What a process of a distributed job knows of its place in it."""

import json
import os
from dataclasses import dataclass
from typing import Any

from tracekit.capture.packages import require


@dataclass(frozen=True)
class Place:
    """The place of this process, as torchrun writes it into the environment."""

    rank: int
    world_size: int
    node: int


def place() -> Place | None:
    """None: this process is alone."""
    try:
        rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        return Place(rank, world_size, int(os.environ.get("GROUP_RANK", 0))) if world_size > 1 else None
    except (KeyError, ValueError):
        return None


def write_place(profiler: Any) -> None:
    """Add the rank, the world size and the process groups to a trace that is being recorded.

    torch writes them only if the groups exist when the recording starts, which they do not in a script that is recorded
    from its first line.
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
