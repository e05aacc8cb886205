"""Formulas by the names of ops. PyTorch's have theirs by a decorator, those of other libraries by a row of ops.toml.

    "sgl_kernel::fp8_scaled_mm" = "scaled_linear(a, weight)"
    "_C::paged_attention_v1" = "paged_attention(_, query, keys, blocks@6, longest@9)"

A row has a formula and the names of its inputs in the order of the op's schema. `_` is an input that the formula does
not use, `name@9` is at position 9, and `name=value` is no input but a number or a word. A user's file (--ops-file) has
such rows, too.

Kernels that torch.compile generates list the ops that they fuse in their names. Inductor
(torch/_inductor/codegen/triton.py and utils.get_fused_kernel_name, torch 2.1 to 2.13) writes
`triton_<kind>_fused_<op>_<op>_<number>`: kind poi (pointwise), per and red (reductions), tem (a template of a GEMM
or of attention), for (foreach); and `cpp_fused_...` on a CPU. Ops are the aten ops before decomposition, sorted.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from tracekit.analyzers.cost.ops.arguments import Arguments
from tracekit.analyzers.cost.ops.call import Cost, Family

Formula = Callable[[Arguments], Cost | None]

FORMULAS: dict[str, Formula] = {}
ROW_FORMULAS: dict[str, Callable[..., Any]] = {}
"""Formulas that rows may name. One that is a class is created with the inputs' positions, and then called."""

_Named = TypeVar("_Named", bound=Callable[..., Any])


class DuplicateFormulaError(ValueError):
    """Two formulas are registered for one op, or two formulas have one name."""


def formula(named: _Named) -> _Named:
    """Make a formula one that rows may name."""
    if named.__name__ in ROW_FORMULAS:
        raise DuplicateFormulaError(f"{named.__name__} is the name of a formula already")
    ROW_FORMULAS[named.__name__] = named
    return named


def costs(*names: str, **bound: Any) -> Callable[[Callable[..., Cost | None]], Callable[..., Cost | None]]:
    """Register a formula for ops; `bound` are keyword arguments that it is called with."""

    def register(function: Callable[..., Cost | None]) -> Callable[..., Cost | None]:
        for name in names:
            _add(name, partial(function, **bound) if bound else function)
        return function

    return register


def _add(name: str, known: Formula) -> None:
    if name in FORMULAS:
        raise DuplicateFormulaError(f"{name} has a formula already")
    FORMULAS[name] = known


_OWN_ROW = re.compile(r'^"(.+)" = "(.+)"$', re.MULTILINE)
"""A row of tracekit's own table, which needs no parser of TOML."""


def add_table(path: Path) -> None:
    """Register the ops of a table of tracekit's own, whose names may have alternatives in braces: `gemm{,_ck}`."""
    formulas = cache(lambda row: bound_to(*parsed(row)))
    for names, row in _OWN_ROW.findall(path.read_text(encoding="utf-8")):
        for name in _alternatives(names):
            _add(name, formulas(row))


def _alternatives(names: str) -> Iterator[str]:
    parts = re.split(r"\{(.*?)\}", names)
    return map("".join, product(*(part.split(",") if at % 2 else [part] for at, part in enumerate(parts))))


_ROW = re.compile(r"(?P<formula>\w+)(?:\((?P<inputs>[^()]*)\))?")
_INPUT = re.compile(r"(?P<name>_|[a-z]\w*)(?:@(?P<at>\d{1,3})|=(?P<value>\d{1,6}|[a-z][\w-]*))?")
_WORDS: dict[str, Any] = {"true": True, "false": False}


def parsed(row: str) -> tuple[str, dict[str, Any]]:
    """Return a row's formula and what it is bound to. Raises ValueError for what is no row."""
    parts = _ROW.fullmatch(row)
    if parts is None:
        raise ValueError("It is not of the form formula(input, _, input@9, name=value).")
    bound: dict[str, Any] = {}
    at = 0
    for text in filter(None, (each.strip() for each in (parts["inputs"] or "").split(","))):
        each = _INPUT.fullmatch(text)
        if each is None or each["name"] in bound:
            raise ValueError(f"'{text[:80]}' is not an input, or is there twice.")
        if value := each["value"]:
            bound[each["name"]] = int(value) if value.isdecimal() else _WORDS.get(value, value)
            continue
        at = int(each["at"] or at)
        if each["name"] != "_":
            bound[each["name"]] = at
        at += 1
    return parts["formula"], bound


def bound_to(name: str, bound: Mapping[str, Any]) -> Formula:
    known = ROW_FORMULAS[name]
    return known(**bound) if isinstance(known, type) else partial(known, **bound) if bound else known


_NAME = re.compile(r"(?:triton|cpp)_(?:(?P<kind>[a-z]{3})_)?fused_(?:(?P<ops>.+?)_)?\d+[0-9a-z]*")
_WITHOUT_FORMULA = """
_adaptive_avg_pool2d _assert_async _embedding_bag _native_batch_norm_legit_functional
_native_batch_norm_legit_no_training _reshape_alias _softmax _to_copy _unsafe_view _weight_norm_interface
all_gather_into_tensor all_reduce all_to_all as_strided broadcast_in_dim broadcast_tensors clamp_max clamp_min
convert_element_type copy_to_mem device_put empty_like empty_strided expand_as flex_attention full_like hann_window
index_expand inductor_lookup_seed inductor_random inductor_seeds lift_fresh_copy new_empty new_empty_strided
pixel_shuffle prepare_softmax_online reduce_scatter_tensor repeat_interleave rms_norm select_scatter slice_scatter
split_with_sizes squeeze_ sym_numel sym_size t_copy unsqueeze_copy view_as view_as_complex view_as_real view_copy
wait_tensor
"""
_PRODUCTS = {"mm", "addmm", "bmm", "baddbmm", "_scaled_mm", "_int_mm", "_grouped_mm", "linear", "matmul"}
_AVERAGES = {"mean", "sum", "var", "var_mean"}
_REDUCTIONS = ("per", "red")


class Generated(msgspec.Struct, frozen=True):
    """A kernel generated by torch.compile, identified by its name."""

    kind: str
    """poi, per, red, tem, for, ...; "" on a CPU."""
    ops: tuple[str, ...]
    """Ops without the prefix aten::; (): the name lists none."""

    @property
    def label(self) -> str:
        return f"fused: {', '.join(self.ops)}" if self.ops else "fused"

    @property
    def family(self) -> Family:
        """The family of the kernel's most expensive op."""
        if self.kind == "tem":
            return _template(set(self.ops))
        if any("softmax" in op for op in self.ops):
            return "softmax"
        if any("_norm" in op for op in self.ops) or ("rsqrt" in self.ops and _AVERAGES & set(self.ops)):
            return "norm"
        if any(op.startswith(("nll_loss", "cross_entropy")) for op in self.ops):
            return "loss"
        if self.kind in _REDUCTIONS:
            return "reduction"
        return "embedding" if any(op.startswith("embedding") for op in self.ops) else "pointwise"


@lru_cache(maxsize=1 << 14)
def generated(name: str) -> Generated | None:
    """Return the ops in the name of a generated kernel (or of its op); None for other kernels."""
    match = _NAME.fullmatch(name)
    return Generated(match["kind"] or "", _ops(match["ops"] or "")) if match else None


def _template(ops: set[str]) -> Family:
    if any("attention" in op for op in ops):
        return "attention"
    return "gemm" if ops & _PRODUCTS or not any("conv" in op for op in ops) else "convolution"


def _ops(joined: str) -> tuple[str, ...]:
    """Return the ops in a kernel's name: the longest known name at each place. An unknown word is a separate op, or
    marks the backward op of the previous one."""
    known, words, ops, at = _known(), joined.split("_"), list[str](), 0
    while at < len(words):
        stops = range(len(words), at + 1, -1)
        stop = next((stop for stop in stops if "_".join(words[at:stop]) in known), None)
        stop = stop or at + (2 if not words[at] else 1)
        op = "_".join(words[at:stop])
        if op == "backward" and ops:
            ops[-1] += "_backward"
        else:
            ops.append(op)
        at = stop
    return tuple(op for op in ops if op)


@lru_cache(maxsize=1)
def _known() -> frozenset[str]:
    """Return the names of ops that have more than one word."""
    formulas = (name.rpartition("::")[2] for name in FORMULAS)
    return frozenset({*_WITHOUT_FORMULA.split(), *(each for name in formulas for each in (name, name.rstrip("_")))})
