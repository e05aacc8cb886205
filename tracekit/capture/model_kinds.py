"""What a transformers configuration says a model can take and do."""

from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from torch import nn

Kind = Literal["a decoder", "an encoder-decoder", "an encoder", "a model of images"]

_UNLIMITED = 1 << 20
"""Models with relative positions have no longest sequence; this bounds what may be asked of one."""


def config_of(model: "nn.Module") -> Any:
    """The transformers configuration of a model."""
    return model.config


def plain(model: "nn.Module") -> "nn.Module":
    """The model without the wrapper that torch.compile puts around it."""
    found: nn.Module = getattr(model, "_orig_mod", model)
    return found


def kind_of(config: Any) -> Kind:
    if getattr(config, "is_encoder_decoder", False):
        return "an encoder-decoder"
    if hasattr(config, "image_size") and not hasattr(config, "vocab_size"):
        return "a model of images"
    return "a decoder" if _generates(config) else "an encoder"


def _generates(config: Any) -> bool:
    """Encoders such as BERT have a causal class too; their architecture, or their default, is without a cache."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CAUSAL
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES as MASKED

    declared = next(iter(getattr(config, "architectures", None) or ()), "")
    if declared:
        return declared in CAUSAL.values() and (config.model_type not in MASKED or getattr(config, "is_decoder", False))
    return config.model_type in CAUSAL and config.model_type not in MASKED


def longest_sequence(config: Any) -> int:
    """Tokens that the model has positions for."""
    if hasattr(config, "relative_attention_num_buckets"):
        return _UNLIMITED
    return int(getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", None) or _UNLIMITED)
