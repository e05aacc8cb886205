"""Analyzes a trace: links each piece of device work to its launch, op, layer, phase and step, counts its cost, finds
what bounds it, and sums the times. Idle time has its causes.
"""

from typing import TYPE_CHECKING

from tracekit.analyzers.core import lazily

if TYPE_CHECKING:
    from tracekit.analyzers.attribute.activity import Launching, host_activity, launching
    from tracekit.analyzers.attribute.analysis import analyze, analyzed
    from tracekit.analyzers.attribute.attributed import attribute, issued
    from tracekit.analyzers.attribute.busy_time import in_steps, timeline, usual_ns, whole_steps
    from tracekit.analyzers.attribute.costed_work import (
        ACCUMULATED,
        gradient_bytes,
        judge,
        parameter_count,
        run_device,
        work_table,
    )
    from tracekit.analyzers.attribute.costing import messages
    from tracekit.analyzers.attribute.counts import source_of
    from tracekit.analyzers.attribute.done_before import Growth, checkpointing, forward_again, growing_prefix, time_in
    from tracekit.analyzers.attribute.gaps import LATE_NS, LONG_GAP_NS, Idle, find_gaps
    from tracekit.analyzers.attribute.host import ENGINE, Host, counted_calls
    from tracekit.analyzers.attribute.host_kinds import (
        LOADING,
        function_of,
        is_compiling,
    )
    from tracekit.analyzers.attribute.host_spans import median_step, shown_steps
    from tracekit.analyzers.attribute.idle_causes import UNKNOWN_CAUSE, blocked_launches
    from tracekit.analyzers.attribute.intervals import Covered, covered_until
    from tracekit.analyzers.attribute.items import innermost_segments
    from tracekit.analyzers.attribute.kernel_names import (
        BETWEEN_DEVICES,
        PAGEABLE,
        PINNED,
        TO_DEVICE,
        TO_HOST,
        WITHIN_DEVICE,
        attends_in_32_bits,
        changes_layout,
        in_doubles,
        is_bluestein,
        is_communication,
        is_copy_to_host,
        is_elementwise,
        is_host_copy,
        is_unaligned,
        matching,
        multiplies_in,
        named_kind,
        named_precision,
        narrower_tile_side,
        normalizes_channels_first,
        one_of,
    )
    from tracekit.analyzers.attribute.layer_tables import NO_LAYER, depths
    from tracekit.analyzers.attribute.loaders import Loader, loader_of
    from tracekit.analyzers.attribute.merged_captures import with_captures
    from tracekit.analyzers.attribute.nesting import Nest, nearest, outermost, take
    from tracekit.analyzers.attribute.op_costs import price
    from tracekit.analyzers.attribute.op_tables import NO_OP, OF_GRAPH, with_children
    from tracekit.analyzers.attribute.recorded_ranges import Batch, UserRanges, batch, requests, serving_phase
    from tracekit.analyzers.attribute.set_apart import UNRECORDED_WORK, as_recorded, recurring
else:
    __getattr__ = lazily(__name__, __file__)
