"""Groups of ops that one kernel could compute, derived from the tensors that connect them, and the plan of their
kernels.
"""

from typing import TYPE_CHECKING

from tracekit.analyzers.core import lazily

if TYPE_CHECKING:
    from tracekit.analyzers.fuse import graph
    from tracekit.analyzers.fuse.execution_graph import ExecutedStep, graph_of
    from tracekit.analyzers.fuse.graph import Call, Graph, Node, Tensor, to_bytes
    from tracekit.analyzers.fuse.groups import OpGroup, roots
    from tracekit.analyzers.fuse.kernel import (
        GENERATED,
        LIBRARY,
        SPELLED,
        WRITTEN_OUT,
        Pass,
        Place,
        Placed,
        Timed,
        TimedKernel,
        in_flight_bytes,
        is_generated,
        thread_bytes,
        tiles_of,
    )
    from tracekit.analyzers.fuse.plan_table import BY_HAND, placed, table
    from tracekit.analyzers.fuse.planned import Planned, plan
else:
    __getattr__ = lazily(__name__, __file__)
