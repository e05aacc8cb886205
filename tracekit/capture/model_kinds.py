"""Derives the inputs and the workloads of a model from its configuration, of transformers or of diffusers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

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


def attention_of_diffusers(requested: Attention) -> Attention:
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


Kind = Literal[
    "a decoder",
    "a recurrent decoder",
    "an encoder-decoder",
    "an encoder",
    "a model of images",
    "a model of images and text",
    "a model of sound",
    "a model of speech",
    "a diffusion model",
]
WITHOUT_TOKENS: tuple[Kind, ...] = ("a model of images", "a model of sound", "a diffusion model")

_OTHER_INPUTS = ("vision_config", "audio_config")
"""Fields in the configurations of models that generate tokens from several kinds of input."""

_UNLIMITED = 1 << 20
"""The longest sequence of models with relative positions, which have no limit themselves."""


_IMAGE_SIZE = 224
_LENGTHS = ("max_position_embeddings", "n_positions", "max_target_positions")


def config_of(model: "nn.Module") -> Any:
    """Return the configuration of a model: that of transformers, or of diffusers."""
    inner = plain(model)
    if is_diffusion(inner):
        return DiffusionConfig(type(inner).__name__, dict(inner.config), "")  # type: ignore[arg-type]
    return model.config


def plain(model: "nn.Module") -> "nn.Module":
    """Return the model without the wrapper of torch.compile."""
    inner: nn.Module = getattr(model, "_orig_mod", model)
    return inner


def kind_of(config: Any) -> Kind:
    """Return the kind of a model. Raises InputError for a model whose inputs tracekit cannot make."""
    if isinstance(config, DiffusionConfig):
        return "a diffusion model"
    if getattr(config, "is_encoder_decoder", False) and hasattr(config, "num_mel_bins"):
        return "a model of speech"
    if all(hasattr(config, name) for name in ("text_config", "vision_config", "projection_dim")):
        return "a model of images and text"
    if hasattr(config, "feat_extract_norm"):
        return "a model of sound"
    several = any(hasattr(config, name) for name in _OTHER_INPUTS)
    tokens = hasattr(config, "vocab_size")
    if not (tokens and several) and model_class(config).main_input_name == "pixel_values":
        return "a model of images"
    if several or not tokens:
        raise _refused(config)
    if getattr(config, "is_encoder_decoder", False):
        return "an encoder-decoder"
    if not _generates(config):
        return "an encoder"
    built = model_class(config)
    return "a recurrent decoder" if built._is_stateful and not built._supports_sdpa else "a decoder"


def _refused(config: Any) -> InputError:
    return InputError(
        f"tracekit cannot make the inputs of models of type {config.model_type!r}.",
        "It supports tokens, images of a fixed size, images with texts, sound, and spectrograms as Whisper takes them.",
        "Call the model from a script of yours: tracekit run SCRIPT",
    )


def _generates(config: Any) -> bool:
    """Return whether the model generates tokens. Encoders such as BERT have a causal class, but no cache by default."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CAUSAL
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES as MASKED

    declared = next(iter(architectures(config)), "")
    if declared:
        return declared in CAUSAL.values() and (config.model_type not in MASKED or getattr(config, "is_decoder", False))
    return config.model_type in CAUSAL and config.model_type not in MASKED


def text_of(config: Any) -> Any:
    """Return the part of a configuration that describes the model's tokens."""
    return getattr(config, "text_config", config)


def pixels_of(config: Any) -> tuple[int, int, int]:
    """Return channels, height and width of the model's images; 224 x 224 if any size is possible."""
    vision = getattr(config, "vision_config", config)
    size = getattr(vision, "image_size", _IMAGE_SIZE)
    height, width = (size, size) if isinstance(size, int) else size
    return vision.num_channels, height, width


def longest_sequence(config: Any) -> int:
    """Return the number of positions of the model, which bounds its sequences."""
    if hasattr(config, "relative_attention_num_buckets"):
        return _UNLIMITED
    lengths = (getattr(text_of(config), name, None) for name in _LENGTHS)
    return int(next(filter(None, lengths), _UNLIMITED))


_HINT = "Correct its config.json, or give the directory that save_pretrained wrote."


def model_class(config: Any, chosen: str = "") -> Any:
    """Return the class `chosen`, else the declared one, else the causal class of the model type.

    Raises InputError if the declared class cannot build the configuration, or transformers has no class for it.
    """
    if isinstance(config, DiffusionConfig):
        return getattr(require("diffusers"), config.class_name)
    transformers = require("transformers")
    for name in (chosen, *architectures(config)):
        if name and hasattr(transformers, name):
            return _checked(getattr(transformers, name), name, config)
    for auto in (transformers.AutoModelForCausalLM, transformers.AutoModel):
        if type(config) in auto._model_mapping:
            return auto._model_mapping[type(config)]
    kind = config.model_type
    raise InputError(f"transformers has no model of type {kind!r}.", "It has only a configuration of this type.", _HINT)


def architectures(config: Any) -> list[str]:
    """Return the class names that the configuration declares; [] if there are none."""
    declared = getattr(config, "architectures", None) or []
    if not isinstance(declared, list) or not all(isinstance(name, str) for name in declared):
        raise InputError(
            "The architectures of the model are wrong.", f"{declared!r} is not a list of class names.", _HINT
        )
    return declared


def _checked(declared: Any, name: str, config: Any) -> Any:
    base = require("transformers").PreTrainedModel
    if not isinstance(declared, type) or base not in declared.__mro__:
        raise InputError("The architectures of the model are wrong.", f"{name} is not a model of transformers.", _HINT)
    expected: Any = getattr(declared, "config_class", None)
    if expected is not None and not isinstance(config, expected):
        why = f"{name} is not a model of type {config.model_type!r}."
        raise InputError("The architectures of the model are wrong.", why, _HINT)
    return declared


def usable_attention(config: Any, requested: Attention) -> Attention:
    """Return the attention of a run: eager if torch could not fuse that of the model.

    Raises InputError if flash attention is requested and the model has no fused attention.
    """
    if isinstance(config, DiffusionConfig):
        return attention_of_diffusers(requested)
    if requested == "eager" or model_class(config)._supports_sdpa:
        return requested
    if requested == "flash":
        raise InputError(
            f"Models of type {config.model_type!r} have no flash attention.",
            "They do not call torch's fused attention.",
            "Leave out --attention.",
        )
    return "eager"
