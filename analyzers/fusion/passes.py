"""The planned kernels of a step by the ops that they replace, by which a trace's ops are identified."""

from typing import NamedTuple

SPELLED = {"aten::_to_copy": "aten::copy_", "aten::clone": "aten::copy_", "aten::embedding": "aten::index_select"}
"""Op that launches the kernel of an op, under whose name a trace records it."""

LIBRARY = ("packed_projections", "padded_projection", "gelu_product")
"""Templates that call a GEMM of the library."""


class Place(NamedTuple):
    """An op of a step: the `number`-th of `among` ops with this name in a layer and phase."""

    layer: str
    phase: str
    op: str
    number: int
    among: int


class Pass(NamedTuple):
    """The ops that kernels replace at one point of a step."""

    places: tuple[Place, ...]
    ratio: float
    """Modelled time of the kernels divided by that of the ops."""
    launches: int
    backward: bool
    timed: bool = False
    """Whether the ratio was measured."""


class Placed(NamedTuple):
    """One group of the plan."""

    number: int
    """Its row in the plan, from 1."""
    template: str
    passes: tuple[Pass, ...]
