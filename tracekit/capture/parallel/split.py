"""Defines how the ranks of a job share a model."""

from dataclasses import dataclass
from typing import Literal, get_args

from tracekit.analyzers.errors import InputError
from tracekit.analyzers.hosts import GPUS_OF_A_HOST, Link

Kind = Literal["data-parallel", "tensor-parallel", "fsdp"]
LINKS: tuple[Link, ...] = get_args(Link)


@dataclass(frozen=True)
class Split:
    """The way in which ranks share a model, their number, and the link between them."""

    kind: Kind
    ranks: int
    link: Link = "nvlink"


def split_of(data_parallel: int, tensor_parallel: int, fsdp: bool, world_size: int, link: Link) -> Split | None:
    """Return the split that the options of `profile` request; None for one GPU.

    `world_size` alone does not say how the ranks share the model. Raises InputError if the options do not fit together.
    """
    numbers: dict[Kind, int] = {"data-parallel": data_parallel, "tensor-parallel": tensor_parallel}
    requested: list[tuple[Kind, int]] = [(kind, number) for kind, number in numbers.items() if number]
    requested += [("fsdp", world_size)] if fsdp else []
    if not requested and not world_size:
        return None
    if len(requested) != 1 or (world_size and requested[0][1] != world_size):
        raise InputError(
            "The ranks cannot share the model in this way.",
            f"Asked for: {', '.join(f'{kind} of {number}' for kind, number in requested) or f'{world_size} ranks'}.",
            "Name one of --data-parallel N, --tensor-parallel N, and --fsdp with --world-size N.",
        )
    kind, ranks = requested[0]
    if ranks < 2:
        raise InputError(
            f"{kind} of {ranks} ranks is not possible.", "Several ranks share a model.", "Name two or more."
        )
    if link == "nvlink" and ranks > GPUS_OF_A_HOST:
        raise InputError(
            f"{ranks} GPUs do not fit in one host.",
            f"NVLink connects up to {GPUS_OF_A_HOST}.",
            "Name the network between hosts: --link ib.",
        )
    return Split(kind, ranks, link)
