"""The names that drivers give GPUs, compared word by word."""

import re
from functools import cache

from tracekit.analyzers.hardware.slices import PROFILE

_NOISE = frozenset({"nvidia", "tesla", "geforce", "amd", "instinct", "tensor", "core", "gpu", "corporation", "oam"})
_VARIANT = re.compile(r"pcie|sxm|\d+gb")


def matches(device_name: str, gpu_id: str, driver_names: tuple[str, ...]) -> bool:
    """Whether a name means this GPU: it has the model's words, and no word that this GPU does not go by.

    A word too many ("Laptop", "Ti", "NVL") is another product; a word too few ("NVIDIA H100") is not.
    """
    own = _words(gpu_id).union(*map(_words, driver_names))
    return has_model(device_name, gpu_id) and _words(device_name) <= own


def has_model(device_name: str, gpu_id: str) -> bool:
    """Whether a name has the words of this GPU's model."""
    return {word for word in _words(gpu_id) if not _VARIANT.fullmatch(word)} <= _words(device_name)


def without_slice(device_name: str) -> tuple[str, str]:
    """The name of the whole GPU, and the profile of its slice: "A100 MIG 3g.40gb" is "A100" and "3g.40gb"."""
    whole, mig, profile = device_name.partition(" MIG ")
    return (whole, profile) if mig and PROFILE.search(profile) else (device_name, "")


@cache
def _words(name: str) -> frozenset[str]:
    words = re.findall(r"[a-z0-9]+", name.lower())
    return frozenset(re.sub(r"^sxm\d$", "sxm", word) for word in words) - _NOISE
