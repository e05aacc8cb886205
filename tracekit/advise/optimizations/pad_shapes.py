"""Pads the sizes of GEMMs to multiples of 16 bytes, which tensor cores need."""

from tracekit.advise.optimization import Optimization, refused
from tracekit.advise.reasons import largest, of_step, say, share_of
from tracekit.analyzers.cost import Cost, Product, is_unaligned, multiple_of, padded, up, vectors
from tracekit.analyzers.predict import Baseline, OpList, Outcome, Rows, products, retimed, where
from tracekit.analyzers.results import Costs, Statements
from tracekit.apply import Subject

_NOTABLE = 0.01
"""Fraction of the kernel time in kernels with unaligned names above which the names confirm the shapes."""
_VOCABULARY = 8192
"""A side of a GEMM with weights that is at least this long is a vocabulary."""


class PadShapes(Optimization):
    """Vocabulary, sequence or hidden size padded to multiples of 16 bytes.

    GEMMs in 16 bits whose rows are not a multiple of 16 bytes load one or two elements at a time
    (`cutlass_…_align1`, `align2`). The prediction is the modelled time of the GEMM with padded sides over that of
    the unpadded GEMM. In measured traces the names of the kernels must confirm it; without shapes, they are the only
    evidence.

    *Refused* if the kernels load whole vectors although the shapes are odd, because strides may be padded already.
    """

    id = "pad-shapes"
    reads_costs = True
    title = "Padded shapes"
    fixes_mistake = True
    costs = Costs("a few rows more", "unchanged, with the padding masked", "one argument")
    caveats = ("Padding must not take part: mask padded tokens, and cut padded logits.",)

    def objection(self, base: Baseline) -> str | None:
        if not _unaligned(base).any():
            return "All GEMMs on tensor cores have rows that are multiples of 16 bytes."
        if base.running.unaligned is not None and base.running.unaligned < _NOTABLE:
            return "The kernels of its GEMMs load whole vectors."
        return None

    def transform(self, base: Baseline, outcome: Outcome) -> OpList:
        def changed(cost: Cost) -> Cost:
            return padded(cost) if is_unaligned(cost, base.gpu) else cost

        return products.aligned(base, retimed(base.ops, changed, base.gpu, outcome), outcome)

    def applied(self, base: Baseline, outcome: Outcome) -> Baseline:
        return products.now_aligned(super().applied(base, outcome))

    def reason(self, base: Baseline) -> Statements:
        if not _by_shapes(base).any():
            return (say("pad-shapes-by-name", share_of(base, _unaligned(base))),)
        side, even = _odd_side(_largest(base))
        sizes = of_step("side", "rows", side), of_step("padded", "rows", even)
        return (say("pad-shapes", share_of(base, _unaligned(base)), *sizes),)

    def evidence(self, base: Baseline) -> Statements:
        return largest(base, _unaligned(base))

    def how_to(self, base: Baseline) -> str:
        if not _by_shapes(base).any():
            return "size = -(-size // 8) * 8  # sizes of GEMMs as multiples of 8"
        largest_product = _largest(base)
        side, even = _odd_side(largest_product)
        if largest_product.weight_bytes and side >= _VOCABULARY:
            return f"model.resize_token_embeddings({even}, pad_to_multiple_of=64)  # {side} before"
        if largest_product.weight_bytes:
            return f"width = {even}  # {side} before: choose sizes that are multiples of 8"
        return f"inputs = F.pad(inputs, (0, 0, 0, {even - side}))  # a length of {even}, not {side}; mask the rest"

    def apply(self, subject: Subject) -> Subject:
        raise refused(self, "Sizes are set in the model's own code: change them there, and compare the two traces.")


def _unaligned(base: Baseline) -> Rows:
    return _by_shapes(base) | products.unaligned(base)


def _by_shapes(base: Baseline) -> Rows:
    return where(base.ops, lambda cost: cost is not None and is_unaligned(cost, base.gpu))


def _largest(base: Baseline) -> Cost:
    """Return the unaligned GEMM with the most FLOPs."""
    cost: Cost = max(base.ops.cost[_by_shapes(base)], key=lambda cost: cost.flops)
    return cost


def _odd_side(cost: Cost) -> tuple[int, int]:
    """Return the longest side that is not a multiple, and the next multiple."""
    assert isinstance(cost.work, Product)
    multiple = multiple_of(cost)
    side = max((side for side in vectors(cost.work) if side % multiple), default=cost.work.n)
    return side, up(side, multiple)
