"""Compares the names that drivers give GPUs, word by word."""

import re
from functools import cache

from tracekit.analyzers.hardware.mig_slices import PROFILE

_NOISE = frozenset({"nvidia", "tesla", "geforce", "amd", "instinct", "tensor", "core", "gpu", "corporation", "oam"})
_VARIANT = re.compile(r"pcie|sxm|\d+gb")


def matches(device_name: str, gpu_id: str, driver_names: tuple[str, ...]) -> bool:
    """Return whether a name means this GPU: it contains the model's words, and no word that is not in the GPU's names.

    An additional word ("Laptop", "Ti", "NVL") means another product; a missing one ("NVIDIA H100") does not.
    """
    own = _words(gpu_id).union(*map(_words, driver_names))
    return has_model(device_name, gpu_id) and _words(device_name) <= own


def has_model(device_name: str, gpu_id: str) -> bool:
    """Return whether a name contains the words of this GPU's model."""
    return {word for word in _words(gpu_id) if not _VARIANT.fullmatch(word)} <= _words(device_name)


def without_slice(device_name: str) -> tuple[str, str]:
    """Split the name of a MIG slice into GPU and profile: "A100 MIG 3g.40gb" becomes "A100" and "3g.40gb"."""
    whole, mig, profile = device_name.partition(" MIG ")
    return (whole, profile) if mig and PROFILE.search(profile) else (device_name, "")


@cache
def _words(name: str) -> frozenset[str]:
    words = re.findall(r"[a-z0-9]+", name.lower())
    return frozenset(re.sub(r"^sxm\d$", "sxm", word) for word in words) - _NOISE
