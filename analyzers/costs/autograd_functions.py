"""Autograd functions of Liger, Apex and Transformer Engine, whose kernels are not inside an op.

A trace records the tensors and numbers passed to `apply`, in order. For nodes of the backward pass it records the
gradients only, so their bytes are a lower bound.
"""

from math import prod

from tracekit.analyzers.costs.arguments import Arguments
from tracekit.analyzers.costs.call import Cost, Family
from tracekit.analyzers.costs.gemm import fit, product
from tracekit.analyzers.costs.registry import costs, moves
from tracekit.analyzers.costs.tensors import Tensor
from tracekit.analyzers.costs.work import Norm, Product, Softmax

_MATRIX = 2
_BACKWARD: tuple[tuple[Family, tuple[str, ...]], ...] = (
    ("attention", ("FlashAttnFunc", "FlashAttnVarlenFunc", "FlashAttnQKVPackedFunc", "FusedAttnFunc")),
    ("norm", ("LigerRMSNormFunction", "LigerLayerNormFunction", "FusedRMSNormAffineFunction")),
    ("norm", ("FusedLayerNormAffineFunction", "FastLayerNormFN")),
    ("pointwise", ("LigerSiLUMulFunction", "LigerGELUMulFunction", "LigerRopeFunction", "FusedRoPEFunc")),
    ("softmax", ("ScaledUpperTriangMaskedSoftmax", "ScaledMaskedSoftmax", "ScaledSoftmax")),
    ("loss", ("LigerCrossEntropyFunction", "CrossEntropyFunction")),
    ("gemm", ("_Linear", "_LayerNormLinear", "_LayerNormMLP", "_GroupedLinear")),
)


@costs("LigerRMSNormFunction", "FusedRMSNormAffineFunction", "LigerFusedAddRMSNormFunction", flops=4)
@costs("LigerLayerNormFunction", "FusedLayerNormAffineFunction", "FastLayerNormFN", flops=8)
def norm(call: Arguments, flops: int) -> Cost:
    """(input, [residual], weight, ...)."""
    tensors = call.every()
    x = tensors[0]
    whole = [each for each in tensors if each.shape == x.shape]
    row = max((each.numel for each in tensors[1:] if each.numel < x.numel), default=x.shape[-1])
    return moves("norm", flops * x.numel, tensors, whole, x.dtype, row=row, work=Norm(flops > 4))


@costs("LigerSiLUMulFunction", flops=6)
@costs("LigerGELUMulFunction", flops=9)
def activation_times(call: Arguments, flops: int) -> Cost:
    """(gate, values)."""
    gate, values = call.tensor(0), call.tensor(1)
    return moves("pointwise", flops * gate.numel, [gate, values], [gate], gate.dtype)


@costs("LigerRopeFunction", rotated=2)
@costs("FusedRoPEFunc", rotated=1)
def rotate(call: Arguments, rotated: int) -> Cost:
    """(query, [key], tables ...): in place."""
    tensors = call.every(0, rotated)
    flops = 3 * sum(each.numel for each in tensors)
    return moves("pointwise", flops, call.every(), tensors, call.tensor(0).dtype)


@costs("LigerCrossEntropyFunction", "CrossEntropyFunction")
def fused_cross_entropy(call: Arguments) -> Cost:
    """(logits, targets, ...): writes the gradient over the logits."""
    x = call.tensor(0)
    return moves("loss", 8 * x.numel, [x, x, call.optional(1)], [x], x.dtype, row=x.shape[-1])


@costs("ScaledUpperTriangMaskedSoftmax", "ScaledMaskedSoftmax", "ScaledSoftmax")
def scaled_softmax(call: Arguments) -> Cost:
    """(scores, [mask], scale)."""
    x, mask = call.tensor(0), call.optional(1)
    return moves("softmax", 6 * x.numel, [x, mask], [x], x.dtype, row=x.shape[-1], work=Softmax())


@costs("_Linear", "_LayerNormLinear")
def layer_of_linear(call: Arguments) -> Cost:
    """(weight, input, ...) or (input, norm's parameters, weight, ...): input[..., k] by weight[n, k]."""
    weight, x = _operands(call)
    work = Product(1, prod(x.shape[:-1]), weight.shape[0], weight.shape[1], weight="b")
    return product(x, weight, work, out=x.dtype)


def _operands(call: Arguments) -> tuple[Tensor, Tensor]:
    """Return the weight and the input. The input of a linear layer follows its weight, that of a norm is the first."""
    tensors = [each for each in call.every() if len(each.shape) >= _MATRIX]
    fit(len(tensors) >= _MATRIX, call.name)
    first, others = tensors[0], [each for each in tensors[1:] if each.shape[-1] == tensors[0].shape[-1]]
    fit(bool(others), call.name)
    weight, x = (first, others[0]) if call.name == "_Linear" else (others[0], first)
    fit(len(weight.shape) == _MATRIX, call.name)
    return weight, x


def gradient(call: Arguments, family: Family) -> Cost:
    """(gradients ...)."""
    tensors = call.every()
    fit(bool(tensors), call.name)
    return moves(family, 0, tensors, tensors, tensors[0].dtype, estimated=True)


for _family, _names in _BACKWARD:
    costs(*(f"{name}Backward" for name in _names), family=_family)(gradient)
