"""Builds models of diffusers for one denoising step. Their configurations are those of diffusers, not of
transformers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tracekit.analyzers.core import InputError
from tracekit.capture.precision import torch_dtype
from tracekit.run import Attention, Dtype, Settings, require

if TYPE_CHECKING:
    from torch import nn


MODEL_TYPE = "diffusers"
_TEXT_TOKENS = 77
"""Tokens of a CLIP prompt, which conditions the image."""
_POOLED, _SIZES = 1280, 6
"""Elements of SDXL's pooled prompt, and the number of its original, cropped and target sizes."""


@dataclass(frozen=True)
class DiffusionConfig:
    """The configuration of a bundled model of diffusers."""

    class_name: str
    parameters: Mapping[str, Any]
    dtype: str
    model_type: str = MODEL_TYPE


def config_from(hyper_parameters: Mapping[str, Any]) -> DiffusionConfig:
    """Return the configuration in a bundled description. `architectures` names the class."""
    known = {name: value for name, value in hyper_parameters.items() if name not in ("model_type", "architectures")}
    dtype = str(known.pop("dtype", "float32"))
    return DiffusionConfig(hyper_parameters["architectures"][0], known, dtype)


def is_diffusion(model: "nn.Module") -> bool:
    return type(model).__module__.partition(".")[0] == MODEL_TYPE


def build(config: DiffusionConfig, dtype: Dtype, device: str) -> "nn.Module":
    """Return the model with random weights."""
    torch = require("torch")
    built, before = getattr(require("diffusers"), config.class_name), torch.get_default_dtype()
    torch.set_default_dtype(torch_dtype(dtype))  # fake weights cannot be converted in place
    try:
        with torch.device(device):
            model: nn.Module = built.from_config(dict(config.parameters))
    finally:
        torch.set_default_dtype(before)
    return model


def usable_attention(requested: Attention) -> Attention:
    """Raise InputError for eager attention, because diffusers calls torch's fused attention."""
    if requested == "eager":
        why = "diffusers calls torch's scaled_dot_product_attention."
        raise InputError("Models of diffusers have no eager attention here.", why, "Leave out --attention.")
    return requested


def inputs(model: Any, settings: Settings) -> dict[str, Any]:
    """Return noisy latents, a time step, and the condition of the model: a prompt, or a class."""
    torch, config = require("torch"), model.config
    options: dict[str, Any] = {"device": settings.torch_device}
    dtype, batch = torch_dtype(settings.dtype), settings.batch_size

    def noise(*shape: int) -> Any:
        return torch.randn(batch, *shape, **options).to(dtype)

    latents = noise(config.in_channels, config.sample_size, config.sample_size)
    steps = torch.full((batch,), 500, dtype=torch.long, **options)
    if hasattr(config, "cross_attention_dim") and "UNet" in type(model).__name__:
        extra = {"text_embeds": noise(_POOLED), "time_ids": noise(_SIZES)}
        text = noise(_TEXT_TOKENS, config.cross_attention_dim)
        return {"sample": latents, "timestep": steps, "encoder_hidden_states": text, "added_cond_kwargs": extra}
    labels = torch.randint(config.num_embeds_ada_norm, (batch,), **options)
    return {"hidden_states": latents, "timestep": steps, "class_labels": labels}
