"""Derive the inputs and workloads of a model from its transformers configuration."""

from typing import TYPE_CHECKING, Any, Literal

from tracekit.analyzers.errors import InputError
from tracekit.capture.model_class import architectures, model_class

if TYPE_CHECKING:
    from torch import nn

Kind = Literal[
    "a decoder", "a recurrent decoder", "an encoder-decoder", "an encoder", "a model of images", "a model of speech"
]

_OTHER_INPUTS = ("feat_extract_norm", "vision_config", "audio_config")
"""Fields of configurations whose models take raw audio, or several inputs."""

_UNLIMITED = 1 << 20
"""Models with relative positions have no longest sequence; this bounds what may be asked of one."""


_LENGTHS = ("max_position_embeddings", "n_positions", "max_target_positions")


def config_of(model: "nn.Module") -> Any:
    """The transformers configuration of a model."""
    return model.config


def plain(model: "nn.Module") -> "nn.Module":
    """The model without the wrapper that torch.compile puts around it."""
    inner: nn.Module = getattr(model, "_orig_mod", model)
    return inner


def kind_of(config: Any) -> Kind:
    """The kind of a model. Raises InputError for one whose inputs tracekit cannot make."""
    if getattr(config, "is_encoder_decoder", False) and hasattr(config, "num_mel_bins"):
        return "a model of speech"
    if not hasattr(config, "vocab_size"):
        if hasattr(config, "image_size"):
            return "a model of images"
        raise _refused(config)
    if any(hasattr(config, name) for name in _OTHER_INPUTS):
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
        "It makes tokens, images of a fixed size, and log-mel spectrograms as Whisper takes them.",
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


def longest_sequence(config: Any) -> int:
    """Return the number of tokens that the model has positions for."""
    if hasattr(config, "relative_attention_num_buckets"):
        return _UNLIMITED
    lengths = (getattr(config, name, None) for name in _LENGTHS)
    return int(next(filter(None, lengths), _UNLIMITED))
