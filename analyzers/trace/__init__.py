"""Reads trace files of any format into a `Trace`: two tables, metadata and problems.

Each format has a folder of its own. Content decides which one reads a file, not its name. What could not be read is a
row of `problems`.
"""

from typing import TYPE_CHECKING

from tracekit.analyzers.core import lazily

if TYPE_CHECKING:
    from tracekit.analyzers.trace import cache, execution_trace, problems, ranges, reading, store
    from tracekit.analyzers.trace.execution_trace import ExecutedCall, TensorValue, tensors_in
    from tracekit.analyzers.trace.kineto import recorded_calls
    from tracekit.analyzers.trace.kineto.assembly import release_freed
    from tracekit.analyzers.trace.kineto.chunks import BOUNDARY, Chunk, Chunks, array_ends, open_events
    from tracekit.analyzers.trace.kineto.columns import MEMORY
    from tracekit.analyzers.trace.kineto.event_columns import RECORDED_AS
    from tracekit.analyzers.trace.kineto.metadata import SAFE_KEYS, entries, is_secret_key, looks_secret
    from tracekit.analyzers.trace.kineto.parallel import ALONE
    from tracekit.analyzers.trace.kineto.recorded_calls import RecordedCalls, read_moves
    from tracekit.analyzers.trace.ncu.metrics import match
    from tracekit.analyzers.trace.problems import Problem, problem
    from tracekit.analyzers.trace.ranges import ROOT, recorded_dims, recorded_shapes, recorded_type
    from tracekit.analyzers.trace.reading import load
    from tracekit.analyzers.trace.remote import is_url, shown
    from tracekit.analyzers.trace.source import MAX_BYTES, RUN_TRACE, Source, open_source, trace_file
    from tracekit.analyzers.trace.trace import (
        DEVICE,
        HOST,
        CaptureInfo,
        DeviceProperties,
        Latency,
        Metadata,
        ProcessGroup,
        RecordedOn,
        Trace,
        program_of,
        single,
    )
else:
    __getattr__ = lazily(__name__, __file__)
