"""Weights of 4 or 8 bits in place of a model's linear layers, to run, to save, and to train adapters on."""

from typing import TYPE_CHECKING

from tracekit.analyzers.core import lazily

if TYPE_CHECKING:
    from tracekit.quantization.nf4 import nf4_linear
    from tracekit.quantization.quantizing import quantize
else:
    __getattr__ = lazily(__name__, __file__)
