"""A step as a list of ops that can be changed and simulated again: the baseline, its calibration to the real latency,
the simulation, transforms of the op list, memory, and the projection to other GPUs.
"""

from typing import TYPE_CHECKING

from tracekit.analyzers.core import lazily

if TYPE_CHECKING:
    from tracekit.analyzers.predict import stream_layout
    from tracekit.analyzers.predict.data_parallel import LAUNCHES_A_BUCKET, Scaling, scaling
    from tracekit.analyzers.predict.fitted_baseline import baseline, start
    from tracekit.analyzers.predict.host import CLASSES, MOST_TO_LAUNCH_NS, HostCosts, assumed, calibrated
    from tracekit.analyzers.predict.math_fallback import Cause
    from tracekit.analyzers.predict.memory import workspace_bytes
    from tracekit.analyzers.predict.op_columns import SWEEP, OpList, changed, joined, present
    from tracekit.analyzers.predict.outside import PYTHON, Outside
    from tracekit.analyzers.predict.projection import (
        KERNEL_ERROR,
        host_range,
        memory_at_least,
        moved,
        note_on_collectives,
        note_on_estimates,
        project,
    )
    from tracekit.analyzers.predict.simulation import Reproduction, simulate
    from tracekit.analyzers.predict.step_baseline import Baseline
    from tracekit.analyzers.predict.stream_layout import (
        ADAPTER_GBS,
        CAP_BYTES,
        FIRST_BYTES,
        HOP_NS,
        SUSTAINED,
        Issued,
        gradients,
        message_ns,
    )
    from tracekit.analyzers.predict.sweep_crossovers import (
        MEASURED,
        MODELLED,
        NONE,
        NUMBERS,
        Crossover,
        crossovers,
    )
    from tracekit.analyzers.predict.traced_step import HostTail
    from tracekit.analyzers.predict.training_memory import saved_bytes, saved_counts
    from tracekit.analyzers.predict.transforms import masks, products
    from tracekit.analyzers.predict.transforms.attention import Written, built_masks, covered, written_out
    from tracekit.analyzers.predict.transforms.batching import (
        FIXED,
        compute_bound_from,
        experts_in_one_kernel,
        largest_that_fits,
        rows_by_values,
        streams_weights,
    )
    from tracekit.analyzers.predict.transforms.by_cost import (
        Outcome,
        Rows,
        alike,
        distinct,
        each,
        each_row,
        in_phase,
        narrowed,
        op_class,
        optimizes,
        pick,
        plain_launch_ns,
        predicted_work,
        put,
        remembered,
        retimed,
        where,
        which,
    )
    from tracekit.analyzers.predict.transforms.fusion import (
        STATISTICS,
        chains,
        costed_by_time,
        fused,
        positions,
        rows_of,
        statistics_first,
        with_kernels,
    )
    from tracekit.analyzers.predict.transforms.fusion_plan import fusion_plan
    from tracekit.analyzers.predict.transforms.masks import (
        FIXED_IN,
        unfused,
        version_of,
        version_text,
        with_fixed_transformers,
    )
    from tracekit.analyzers.predict.transforms.math_attention import (
        GENERATED,
        REPEATED,
        is_compiled,
        is_masked,
        with_masks,
    )
    from tracekit.analyzers.predict.transforms.precision import (
        PYTHON_OP,
        SUBCLASS,
        TORCHAO,
        WIDE,
        WIDENING,
        Extra,
        moving,
        with_extras,
        with_wide_parts,
    )
    from tracekit.analyzers.predict.transforms.products import (
        HEADS,
        LinearProduct,
        gates_first,
        halved_at_best,
        inner_products,
        linear_product,
        now_in,
        products_of,
        retimed_by_name,
        rows_in_precision,
        shrunk,
        stored_bytes,
        with_weights,
    )
    from tracekit.analyzers.predict.uncertainty import (
        MOST_QUOTED,
        Evidence,
        Sources,
        Untold,
        Widths,
        interval,
        widths,
        widths_to_decide,
    )
else:
    __getattr__ = lazily(__name__, __file__)
