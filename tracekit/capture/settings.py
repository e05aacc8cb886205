"""The settings of a run: one frozen value from the command line to the trace file."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

WorkloadName = Literal["prefill", "decode", "generate", "train"]
Dtype = Literal["auto", "fp32", "tf32", "fp16", "bf16"]
Attention = Literal["eager", "sdpa", "flash"]
Device = Literal["auto", "cuda", "cpu", "model"]
Weights = Literal["random", "pretrained"]

WORKLOAD_NAMES: tuple[WorkloadName, ...] = get_args(WorkloadName)
DTYPES: tuple[Dtype, ...] = get_args(Dtype)
ATTENTIONS: tuple[Attention, ...] = get_args(Attention)
DEVICES: tuple[Device, ...] = get_args(Device)
WEIGHTS: tuple[Weights, ...] = get_args(Weights)


@dataclass(frozen=True, kw_only=True)
class Settings:
    model: str
    """A bundled name, a directory with a config.json, or a hub name."""
    name: str = ""
    """Name shown in reports and folders; "": that of `model`."""
    gpu: str = ""
    """Id of the GPU asked for; "" when none was."""
    gpu_file: str = ""
    """A TOML file that describes GPUs; with one GPU in it, `gpu` may be left out."""
    workload: WorkloadName = "prefill"
    batch_size: int = 1
    seq_len: int = 0
    """Tokens of the prompt (prefill, generate, train), or held in the KV cache (decode). 0: 512, or what fits."""
    new_tokens: int = 32
    """Tokens that generate makes: the first by the prefill, the others by decode steps."""
    dtype: Dtype = "auto"
    """auto: what the weights are published in; fp16 for bf16 where the GPU has none."""
    attention: Attention = "sdpa"
    device: Device = "auto"
    """auto, in settings that are planned: one of the others."""
    weights: Weights = "random"
    steps: int = 3
    """Steps recorded in the trace."""
    output: str | Path = ""
    """Folder of the files; "": runs/MODEL-GPU-WORKLOAD."""

    @property
    def torch_device(self) -> str:
        """The torch device of the tensors; a modelled run creates fake tensors on the CPU."""
        return "cuda" if self.device == "cuda" else "cpu"

    @property
    def folder(self) -> Path:
        return Path(
            self.output or f"runs/{self.shown_name.replace('/', '-')}-{self.gpu or self.device}-{self.workload}"
        )

    def with_seq_len(self, seq_len: int) -> "Settings":
        return replace(self, seq_len=seq_len)

    @property
    def shown_name(self) -> str:
        return self.name or self.model

    def described(self) -> dict[str, Any]:
        """The fields of a CaptureInfo that say what was run."""
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
        }

    def as_dict(self) -> dict[str, Any]:
        return {**self.__dict__, "output": str(self.output)}
