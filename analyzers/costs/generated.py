"""Kernels that torch.compile generates: their names list the ops that they fuse.

Inductor (torch/_inductor/codegen/triton.py and utils.get_fused_kernel_name, torch 2.1 to 2.13) writes
`triton_<kind>_fused_<op>_<op>_<number>`: kind poi (pointwise), per and red (reductions), tem (a template of a product
or of attention), for (foreach); and `cpp_fused_...` on a CPU. Ops are the aten ops before decomposition, sorted.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from tracekit.analyzers.costs.call import Family
from tracekit.analyzers.costs.registry import FORMULAS

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


@dataclass(frozen=True)
class Generated:
    """A generated kernel, by its name."""

    kind: str
    """poi, per, red, tem, for, ...; "" on a CPU."""
    ops: tuple[str, ...]
    """Without the prefix aten::; () for a kernel that names none."""

    @property
    def label(self) -> str:
        return f"fused: {', '.join(self.ops)}" if self.ops else "fused"

    @property
    def family(self) -> Family:
        """The family of the kernel's largest op."""
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
    """The ops that the name of a generated kernel (or of its op) lists; None for other kernels."""
    match = _NAME.fullmatch(name)
    return Generated(match["kind"] or "", _ops(match["ops"] or "")) if match else None


def _template(ops: set[str]) -> Family:
    if any("attention" in op for op in ops):
        return "attention"
    return "gemm" if ops & _PRODUCTS or not any("conv" in op for op in ops) else "convolution"


def _ops(joined: str) -> tuple[str, ...]:
    """The longest known name at each place; an unknown word is an op by itself, or the backward of the one before."""
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
    """Names of ops that have more than one word."""
    formulas = (name.rpartition("::")[2] for name in FORMULAS)
    return frozenset({*_WITHOUT_FORMULA.split(), *(each for name in formulas for each in (name, name.rstrip("_")))})
