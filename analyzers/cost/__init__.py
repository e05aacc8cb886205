"""What an op costs on a GPU: FLOPs and bytes from its recorded inputs (`ops`), GPUs (`hardware`), and the modelled
time of its kernels (`time`).
"""

from typing import TYPE_CHECKING

from tracekit.analyzers.core import lazily

if TYPE_CHECKING:
    from tracekit.analyzers.cost import hardware
    from tracekit.analyzers.cost.hardware import ALIASES, GPU, all_gpus, known
    from tracekit.analyzers.cost.hardware.catalogue import resolve
    from tracekit.analyzers.cost.hardware.data_sheet import SMLimits, sm_limits
    from tracekit.analyzers.cost.hardware.gpu import LAUNCH_CALL, PRECISIONS, nearest
    from tracekit.analyzers.cost.ops import tensors
    from tracekit.analyzers.cost.ops.arguments import Arguments, moves
    from tracekit.analyzers.cost.ops.call import ELEMENT_BYTES, Access, Cost, Family, batched
    from tracekit.analyzers.cost.ops.costs import (
        MalformedCall,
        OpCall,
        cost_of,
        cost_of_signature,
        ops_from,
        parameters,
        parse_call,
    )
    from tracekit.analyzers.cost.ops.gemm import GATES
    from tracekit.analyzers.cost.ops.registry import costs, formula, generated
    from tracekit.analyzers.cost.ops.tensors import Tensor
    from tracekit.analyzers.cost.ops.work import (
        Append,
        Attention,
        ConvolutionGradients,
        Norm,
        Precision,
        Product,
        Recurrent,
        Reduce,
        Work,
    )
    from tracekit.analyzers.cost.time.attention import BACKWARD
    from tracekit.analyzers.cost.time.estimate import estimate_ns
    from tracekit.analyzers.cost.time.gemm import VECTOR_BYTES, is_unaligned, multiple_of, padded, rounded_up, vectors
    from tracekit.analyzers.cost.time.links import (
        Kind,
        Message,
        collective_ns,
        copy_ns,
        kind_of,
        message,
        message_by_inputs,
    )
else:
    __getattr__ = lazily(__name__, __file__)
