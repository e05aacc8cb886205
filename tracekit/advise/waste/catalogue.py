"""The kinds of waste with their detectors, in the order in which they are removed."""

from tracekit.advise.waste.again import (
    calls_for_items,
    casts_of_weights,
    copies_of_one_size,
    forward_passes_again,
    passes_without_cache,
    remade_constants,
    weights_for_each_item,
)
from tracekit.advise.waste.removal import Waste
from tracekit.advise.waste.unasked import (
    casts_there_and_back,
    collected_and_freed,
    dropout_in_inference,
    logits_of_all_tokens,
    numbers_in_64_bits,
    swept_tables,
    zeros_in_gradients,
)

DETECTORS = {
    "memory-management": collected_and_freed,
    "kv-cache": passes_without_cache,
    "one-call-per-item": calls_for_items,
    "double-precision": numbers_in_64_bits,
    "recomputation": forward_passes_again,
    "dense-table": swept_tables,
    "zeroed-gradients": zeros_in_gradients,
    "remade-constants": remade_constants,
    "copied-again": copies_of_one_size,
    "casts-back": casts_there_and_back,
    "weights-cast": casts_of_weights,
    "gathered-weights": weights_for_each_item,
    "unused-logits": logits_of_all_tokens,
    "training-mode": dropout_in_inference,
}

WASTE = tuple(Waste(name, detect) for name, detect in DETECTORS.items())
