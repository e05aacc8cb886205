"""The settings of a run: one immutable value from the command line to the trace file."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from tracekit.analyzers.core import GPUS_OF_A_HOST, InputError, Link

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


WorkloadName = Literal["prefill", "decode", "generate", "train"]
Dtype = Literal["auto", "fp32", "tf32", "fp16", "bf16"]
Attention = Literal["eager", "sdpa", "flash"]
Device = Literal["auto", "cuda", "cpu", "model"]
Weights = Literal["random", "pretrained"]

Synchronize = Literal["", "modules"]

WORKLOAD_NAMES: tuple[WorkloadName, ...] = get_args(WorkloadName)
DTYPES: tuple[Dtype, ...] = get_args(Dtype)
ATTENTIONS: tuple[Attention, ...] = get_args(Attention)
DEVICES: tuple[Device, ...] = get_args(Device)
WEIGHTS: tuple[Weights, ...] = get_args(Weights)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a run was asked for."""

    model: str
    """A bundled name, a directory with a config.json, or a hub name."""
    name: str = ""
    """Name in reports and folders; "" for that of `model`."""
    gpu: str = ""
    """Id of the requested GPU; "" for none."""
    gpu_file: str = ""
    """A TOML file that describes GPUs. If it describes only one, `gpu` may be left out."""
    workload: WorkloadName = "prefill"
    batch_size: int = 1
    seq_len: int = 0
    """Tokens of the prompt (prefill, generate, train), or in the KV cache (decode). 0: 512, or the model's maximum."""
    new_tokens: int = 32
    """Tokens that generate produces: the first by the prefill, the others by decode steps."""
    dtype: Dtype = "auto"
    """auto: the dtype of the published weights, with fp16 in place of bf16 on a GPU without bf16."""
    attention: Attention = "sdpa"
    device: Device = "auto"
    """auto before planning, which replaces it by one of the others."""
    weights: Weights = "random"
    steps: int = 3
    """Number of steps in the trace."""
    synchronize: Synchronize = ""
    """modules: each module is also timed between synchronizations of the device."""
    data_parallel: int = 0
    """Ranks that train with DistributedDataParallel; 0: one."""
    tensor_parallel: int = 0
    """Ranks that share each layer; 0: one."""
    fsdp: bool = False
    """Whether `world_size` ranks share the weights (fully_shard)."""
    world_size: int = 0
    """Number of ranks; 0: that of the other options."""
    link: Link = "nvlink"
    """The link between modelled ranks."""
    output: str | Path = ""
    """Folder for the files; "" for runs/MODEL-GPU-WORKLOAD."""

    @property
    def split(self) -> Split | None:
        """How ranks share the model; None for one GPU. Raises InputError if the options do not fit together."""
        return split_of(self.data_parallel, self.tensor_parallel, self.fsdp, self.world_size, self.link)

    @property
    def torch_device(self) -> str:
        """The torch device of the tensors. A modelled run creates fake tensors on the CPU."""
        return "cuda" if self.device == "cuda" else "cpu"

    @property
    def folder(self) -> Path:
        if self.output:
            return Path(self.output)
        ranks = f"-{self.split.kind}-{self.split.ranks}" if self.split else ""
        return Path(f"runs/{self.shown_name.replace('/', '-')}-{self.gpu or self.device}-{self.workload}{ranks}")

    def changed(self, **changes: Any) -> "Settings":
        return replace(self, **changes)

    def with_seq_len(self, seq_len: int) -> "Settings":
        return self.changed(seq_len=seq_len)

    @property
    def shown_name(self) -> str:
        return self.name or self.model

    def described(self) -> dict[str, Any]:
        """Return the fields of CaptureInfo that describe the run."""
        split = self.split
        return {
            "model": self.shown_name,
            "workload": self.workload,
            "batch_size": self.batch_size,
            "seq_len": self.seq_len,
            "new_tokens": self.new_tokens if self.workload == "generate" else 0,
            "dtype": self.dtype,
            "attention": self.attention,
            "weights": self.weights,
            "steps": self.steps,
            **({"split": split.kind, "ranks": split.ranks, "link": split.link} if split else {}),
        }

    def as_dict(self) -> dict[str, Any]:
        return {**self.__dict__, "output": str(self.output)}
