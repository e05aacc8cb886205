"""Completes the requested settings: finds the model, chooses device and GPU, and checks the lengths."""

from typing import Any

from tracekit.analyzers.core import InputError
from tracekit.analyzers.cost import GPU, hardware
from tracekit.capture import models, workloads
from tracekit.capture.capture_session import refuse_modelled, refuse_on_cpu
from tracekit.capture.model_kinds import usable_attention
from tracekit.capture.precision import has_experts, published_dtype
from tracekit.run import Device, Settings, require


def complete(requested: Settings) -> Settings:
    """Return the settings with device, GPU and sequence length filled in.

    Raises TracekitError if the model, the GPU or the workload is unknown, or does not fit the others.
    """
    spec = models.find(requested.model)
    named = hardware.selected(requested.gpu, requested.gpu_file)
    device = _device(requested)
    refuse_on_cpu(named, device)
    gpu = named or _gpu_here(device)
    config = models.load_config(spec)
    dtype = published_dtype(config, gpu) if requested.dtype == "auto" else requested.dtype
    settings = requested.changed(name=spec.name, device=device, gpu=gpu.id if gpu else "", dtype=dtype)
    settings = settings.changed(attention=usable_attention(config, requested.attention))
    _check_ranks(settings)
    _check_synchronized(settings)
    if device == "model":
        _check_modelled(settings, gpu)
        _check_experts(settings, config)
    return workloads.complete(settings, config)


def _device(settings: Settings) -> Device:
    here = require("torch.cuda").is_available()
    if settings.device == "cuda" and not here:
        raise InputError(
            "There is no CUDA device here.", "torch finds none.", "Try --device model, which models the run for --gpu."
        )
    if settings.device != "auto":
        return settings.device
    return "cuda" if here else "model"


def _gpu_here(device: Device) -> GPU | None:
    """Return the GPU of this machine; None for a device other than CUDA, or a GPU that is not in the catalogue."""
    return hardware.resolve(require("torch.cuda").get_device_name()) if device == "cuda" else None


def _check_modelled(settings: Settings, gpu: GPU | None) -> None:
    if gpu is None:
        raise InputError(
            "No GPU is named.",
            "There is no GPU here, so the run is modelled, which needs the name of one.",
            "Add --gpu t4, or another that `tracekit gpus` lists; or --device cpu to run on this machine.",
        )
    if settings.attention == "flash" and not gpu.supports("flash-attention"):
        raise InputError(
            f"The {gpu.name} has no flash attention.",
            "It needs compute capability 8.0 or later.",
            "Try --attention sdpa.",
        )
    if settings.attention == "flash" and settings.dtype in ("fp32", "tf32"):
        raise InputError(
            "Flash attention does not support fp32.",
            "It supports half precision (fp16, bf16) only.",
            "Add --dtype bf16.",
        )


def _check_experts(settings: Settings, config: Any) -> None:
    if has_experts(config) and settings.dtype != "bf16":
        raise InputError(
            f"{settings.shown_name} cannot be modelled in {settings.dtype}.",
            "It is a mixture of experts, and torch has grouped GEMMs only for bf16.",
            "Leave out --dtype.",
        )


def _check_synchronized(settings: Settings) -> None:
    """Raise InputError if modules cannot be timed between synchronizations."""
    if not settings.synchronize:
        return
    refuse_modelled(settings.device)
    if settings.workload == "train" or settings.split:
        why = "Hooks time the modules of a forward pass, on one device."
        raise InputError(f"Modules of {'several ranks' if settings.split else 'a training step'} are not timed.", why)


def _check_ranks(settings: Settings) -> None:
    """Raise InputError if the ranks cannot run the settings."""
    split = settings.split
    if split is None:
        return
    if split.kind != "tensor-parallel" and settings.workload != "train":
        raise InputError(
            f"{split.kind} is a way of training.", f"{settings.workload} trains nothing.", "Add --workload train."
        )
    here = require("torch.cuda").device_count()
    if settings.device == "cuda" and split.ranks > here:
        raise InputError(
            f"{split.ranks} GPUs are asked for.",
            f"This machine has {here}.",
            "Name as many, or add --device model --gpu NAME.",
        )
