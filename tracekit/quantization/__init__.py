"""Weights of 4 or 8 bits in place of a model's linear layers, to run, to save, and to train adapters on."""

from typing import TYPE_CHECKING

from tracekit.analyzers.core import lazily

if TYPE_CHECKING:
    from tracekit.quantization.decoder import fuse_decoder
    from tracekit.quantization.files import load, save
    from tracekit.quantization.quantizing import CHANNEL, Group, quantize
else:
    __getattr__ = lazily(__name__, __file__)
