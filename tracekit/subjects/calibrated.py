"""Quantization by torchao whose scales are chosen with the activations on a text: AWQ and SmoothQuant."""

from collections.abc import Sequence
from typing import Any, Literal

from tracekit.analyzers.errors import InputError, TracekitError
from tracekit.capture.packages import require
from tracekit.subjects.quantized import inner_layers
from tracekit.subjects.subject import Subject

Method = Literal["awq", "smoothquant"]
METHODS: tuple[Method, ...] = ("awq", "smoothquant")


def with_calibrated(subject: Subject, method: Method, windows: Sequence[Any]) -> Subject:
    """Return the subject with its nn.Linear layers, except the head, quantized.

    `awq` gives weights in int4 in groups of 128 (Lin et al., 2023), `smoothquant` weights and activations in int8 (Xiao
    et al., 2022). `windows` are tensors of token ids, of equal length, on which the activations are observed. Raises
    TracekitError for training, or without an nn.Linear layer, and InputError without windows.
    """
    if subject.training:
        raise TracekitError("Quantized weights cannot be trained.", "A training step would change them.")
    if not windows:
        raise InputError("Nothing to calibrate with.", "The text is shorter than a window.", "Give --calibration FILE.")
    changed = subject.with_dtype("bf16").with_twin()
    wanted = {id(layer) for _, _, layer in inner_layers(changed.model, ("Linear",))}
    if not wanted:
        raise TracekitError("Nothing can be quantized.", "The model has no nn.Linear layer other than its head.")
    quantize = require("torchao.quantization").quantize_
    quantize(changed.model, _config(method, "prepare"), filter_fn=lambda layer, _: id(layer) in wanted)
    with require("torch").inference_mode(False), require("torch").no_grad(), changed.numerics():
        for window in windows:
            changed.model(input_ids=window[None], use_cache=False)
        quantize(changed.model, _config(method, "convert"), filter_fn=_observed)
    return changed


def _observed(layer: Any, _: str) -> bool:
    return "Observed" in type(layer).__name__


def _config(method: Method, step: str) -> Any:
    quantization = require("torchao.quantization")
    if method == "awq":
        base = quantization.Int4WeightOnlyConfig(int4_packing_format="tile_packed_to_4d", set_inductor_config=False)
        return require("torchao.prototype.awq").AWQConfig(base, step=step)
    base = quantization.Int8DynamicActivationInt8WeightConfig(set_inductor_config=False)
    return require("torchao.prototype.smoothquant").SmoothQuantConfig(base, step=step)
