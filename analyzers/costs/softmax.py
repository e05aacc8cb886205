"""Softmax and log-softmax: five FLOPs per element forward (maximum, difference, exponential, sum, scale), 4
backward."""

from tracekit.analyzers.costs.arguments import Arguments
from tracekit.analyzers.costs.call import Cost
from tracekit.analyzers.costs.dtypes import FLOAT32
from tracekit.analyzers.costs.registry import costs, moves
from tracekit.analyzers.costs.work import Softmax

FORWARD_FLOPS = 5
BACKWARD_FLOPS = 4


@costs("aten::_softmax", "aten::_log_softmax")
def softmax(call: Arguments) -> Cost:
    """(self, dim, half_to_float)."""
    x = call.tensor(0)
    out = x.like(dtype=FLOAT32 if call.flag(2) else None)
    return moves(
        "softmax", FORWARD_FLOPS * x.numel, [x], [out], x.dtype, row=x.shape[-1] if x.shape else 1, work=Softmax()
    )


@costs("aten::softmax", "aten::log_softmax", "aten::_safe_softmax")
def softmax_composite(call: Arguments) -> Cost:
    """(self, dim, dtype)."""
    x = call.tensor(0)
    return moves(
        "softmax", FORWARD_FLOPS * x.numel, [x], [x.like(dtype=call.dtype(2))], x.dtype, row=x.shape[-1], work=Softmax()
    )


@costs("aten::_masked_softmax")
def masked_softmax(call: Arguments) -> Cost:
    x, mask = call.tensor(0), call.tensor(1)
    return moves("softmax", FORWARD_FLOPS * x.numel, [x, mask], [x], x.dtype, row=x.shape[-1], work=Softmax())


@costs("aten::_softmax_backward_data", "aten::_log_softmax_backward_data")
def softmax_backward(call: Arguments) -> Cost:
    """(grad_output, output, dim, input_dtype)."""
    grad, out = call.tensor(0), call.tensor(1)
    written = out.like(dtype=call.dtype(3))
    row = out.shape[-1] if out.shape else 1
    return moves("softmax", BACKWARD_FLOPS * out.numel, [grad, out], [written], out.dtype, row=row, work=Softmax(True))
