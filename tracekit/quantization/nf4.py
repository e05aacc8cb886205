"""Linear layers of bitsandbytes with weights in NF4. Importing this module needs torch."""

from typing import Any

from torch import nn

from tracekit.run import require


def nf4_linear(weight: Any, bias: Any) -> nn.Module:
    """Return bitsandbytes' layer for weights of shape (outputs, inputs)."""
    modules = require("bitsandbytes").nn
    options = {"bias": bias is not None, "quant_type": "nf4", "compute_dtype": weight.dtype, "device": "meta"}
    layer: nn.Module = modules.Linear4bit(weight.shape[1], weight.shape[0], **options)
    layer.weight = modules.Params4bit(weight, requires_grad=False, quant_type="nf4", module=layer)
    layer.bias = bias
    layer.register_load_state_dict_pre_hook(_take_scales)
    return layer.to(weight.device)


def _take_scales(layer: Any, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Load the weights with their scales, which bitsandbytes writes into a state_dict but does not read from it."""
    name = f"{prefix}weight"
    scales = {key: state.pop(key) for key in list(state) if key.startswith(f"{name}.")}
    if scales:
        weight, device = type(layer.weight), layer.weight.device
        layer.weight = weight.from_prequantized(state[name], scales, device=device, module=layer)


def rounded(weight: Any) -> Any:
    """Return weights as the layer stores them: blocks of 64, whose scales are quantized, too."""
    functional = require("bitsandbytes.functional")
    stored = functional.quantize_4bit(weight.contiguous(), quant_type="nf4", compress_statistics=True)
    return functional.dequantize_4bit(*stored).to(weight.dtype)
