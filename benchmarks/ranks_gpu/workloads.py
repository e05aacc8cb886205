"""Training of GPT-2, BERT and Llama 3.2 1B, data parallel or sharded, and tensor-parallel inference; random weights."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import planting
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, BertConfig, GPT2Config, LlamaConfig

DECODED = 2


@dataclass(frozen=True)
class Workload:
    """A model, how its ranks share the work, and the batch of one rank."""

    model: str
    parallel: str
    """"": one GPU by itself."""
    batch: int
    tokens: int


SCALED = {
    "medium": Workload("gpt2-medium", "ddp", 8, 1024),
    "small": Workload("gpt2-small", "ddp", 4, 256),
    "base": Workload("gpt2-base", "ddp", 2, 512),
    "llama": Workload("llama", "ddp", 2, 2048),
    "large": Workload("gpt2-large", "ddp", 4, 1024),
    "long": Workload("gpt2-small", "ddp", 8, 1024),
    "short": Workload("gpt2-medium", "ddp", 2, 256),
    "encoder": Workload("bert", "ddp", 64, 256),
}
JOBS = {
    "tensor": Workload("llama", "tensor", 12, 1536),
    "medium": SCALED["medium"],
    "fsdp": Workload("llama", "fsdp", 2, 1536),
    "small": SCALED["small"],
}
_GPT2 = {
    "gpt2-large": {"n_layer": 36, "n_embd": 1280, "n_head": 20},
    "gpt2-medium": {"n_layer": 24, "n_embd": 1024, "n_head": 16},
    "gpt2-base": {"n_layer": 12, "n_embd": 768, "n_head": 12},
    "gpt2-small": {"n_layer": 6, "n_embd": 512, "n_head": 8},
}


@dataclass(frozen=True)
class Running:
    """A job on one rank: its model, which gets the hooks, one step of it, and the fault that it has now."""

    model: nn.Module
    step: "Step"
    fault: planting.Fault


Step = Callable[[], tuple[float, ...]]
"""Runs a step and returns when the host had come through each of its parts: `PARTS`, as far as it has them."""
PARTS = ("forward", "backward", "optimizer", "wait")


def build(work: Workload, device: torch.device, tiny: bool) -> Running:
    torch.manual_seed(0)
    config = _config(work.model, tiny)
    batch = (2, 32) if tiny else (work.batch, work.tokens)
    mixed = work.model != "llama"
    dtype = torch.float32 if mixed or work.parallel == "fsdp" or device.type == "cpu" else torch.bfloat16
    with torch.device(device):
        kind = AutoModelForMaskedLM if work.model == "bert" else AutoModelForCausalLM
        model = kind.from_config(config, dtype=dtype, attn_implementation="sdpa")
    fault = planting.Fault()
    batches = iter(DataLoader(planting.Tokens(batch, config.vocab_size, fault), batch_size=None))
    planting.more_work(model, device, tiny, fault)
    if work.parallel == "tensor":
        return Running(model, _inference(_tensor_parallel(model, device), batches, device), fault)
    wrapped = _sharded(model, device) if work.parallel == "fsdp" else _replicated(model, work.parallel)
    return Running(model, _training(wrapped, batches, device, mixed=mixed), fault)


def _config(name: str, tiny: bool) -> Any:
    if name in _GPT2:
        small = {"n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 1000}
        return GPT2Config(use_cache=False, **(small if tiny else _GPT2[name]))
    if name == "bert":
        narrow = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
        return BertConfig(**(narrow | {"vocab_size": 1000} if tiny else {}))
    small = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "vocab_size": 1000}
    large = {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "vocab_size": 128256}
    heads = {"num_attention_heads": 8 if tiny else 32, "num_key_value_heads": 4 if tiny else 8}
    return LlamaConfig(
        max_position_embeddings=131072,
        tie_word_embeddings=True,
        use_cache=False,
        rms_norm_eps=1e-5,
        **heads,
        **(small if tiny else large),
    )


def _replicated(model: nn.Module, parallel: str) -> nn.Module:
    return DistributedDataParallel(model) if parallel else model


def _sharded(model: Any, device: torch.device) -> nn.Module:
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


def _tensor_parallel(model: Any, device: torch.device) -> nn.Module:
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    columns, rows = (
        ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj"),
        (
            "self_attn.o_proj",
            "mlp.down_proj",
        ),
    )
    plan = {name: ColwiseParallel() for name in columns} | {name: RowwiseParallel() for name in rows}
    for layer in model.model.layers:
        parallelize_module(layer, mesh, plan)
    return parallelize_module(model, mesh, {"lm_head": ColwiseParallel(output_layouts=Replicate())}).eval()


def _training(model: nn.Module, batches: Iterator[torch.Tensor], device: torch.device, mixed: bool) -> Step:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> tuple[float, ...]:
        tokens = next(batches).to(device)
        with torch.autocast(device.type, torch.bfloat16, enabled=mixed):
            loss = model(input_ids=tokens, labels=tokens).loss
        forward = time.perf_counter()
        loss.backward()
        backward = time.perf_counter()
        optimizer.step()
        optimizer.zero_grad()
        updated = time.perf_counter()
        loss.item()
        return forward, backward, updated, time.perf_counter()

    return step


def _inference(model: Any, batches: Iterator[torch.Tensor], device: torch.device) -> Step:
    @torch.no_grad()
    def step() -> tuple[float, ...]:
        tokens, cache = next(batches).to(device), None
        for _ in range(1 + DECODED):
            out = model(input_ids=tokens, past_key_values=cache, use_cache=True, logits_to_keep=1)
            tokens, cache = out.logits[:, -1:].argmax(-1), out.past_key_values
        tokens.tolist()
        return ()

    return step
