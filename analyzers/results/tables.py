"""The tables of an analysis, with documented columns."""

from tracekit.analyzers.core import BOUND, BUSY, COST, COSTED, FAMILY, PLACED, ROOF, SHARE, START, TIMES, Column, Table

WORK = Table(
    "work",
    "Each work item on a device (in a CPU-only trace: each op's self time), attributed and costed; in DEVICE's order.",
    START,
    Column("duration_ns", "int64", "ns", "its own duration, not shared with overlapping work"),
    BUSY,
    Column("gap_ns", "int64", "ns", "idle time of the device just before it, inside its step; 0 for the first"),
    Column("delay_ns", "int64", "ns", "from the start of its launch to its own start; -1: launch unknown"),
    Column("device", "int32", "", "device index; -1: host"),
    Column("stream", "int64", "", "stream id; -1: not recorded"),
    Column("category", "category", "", "kernel, memcpy, memset, or op (CPU-only trace)"),
    Column("name", "category", "", "kernel name, or op name in a CPU-only trace"),
    Column("launch", "int64", "", "row in host of the runtime call that launched it; -1: unknown"),
    Column("graph", "int64", "", "id of the CUDA graph that launched it; -1: none"),
    Column("captured", "int64", "", "row in host of the call captured into that graph as this work; -1: unknown"),
    Column("op", "int64", "", "row in host of the innermost op around the launch (or its capture); -1: unknown"),
    Column("op_name", "category", "", 'name of that op; "": unknown'),
    Column("cost_op", "int64", "", "row in host of the innermost op around the launch whose cost is known; -1: none"),
    Column("layer", "int64", "", "row in layers; -1: none"),
    Column("phase", "category", "", 'name of the phase; "": none'),
    Column("step", "int64", "", "index of the step; -1: outside every step"),
    Column("family", "category", "", 'family of the costed op (gemm, attention, ...); "": unknown'),
    Column("precision", "category", "", 'precision of the arithmetic; "": unknown'),
    *COST,
    Column("counters", "int64", "", "row in counters that measured FLOPs and bytes; -1: they are counted"),
    *ROOF,
    *BOUND,
)

OPS = Table(
    "ops",
    "Ops by name. An op's time is that of the work that it launched itself, so nothing is counted twice.",
    Column("name", "object", "", "op name, such as aten::addmm"),
    FAMILY,
    Column("calls", "int64", "", "calls"),
    Column("kernels", "int64", "", "device work items launched"),
    *TIMES,
    Column("cpu_ns", "int64", "ns", "self time of the op on the host, without the ops inside it"),
    *PLACED,
)

KERNELS = Table(
    "kernels",
    "Kernels (and copies and sets) by name.",
    Column("name", "object", "", "kernel name as recorded"),
    Column("category", "object", "", "kernel, memcpy, or memset"),
    Column("calls", "int64", "", "launches"),
    *TIMES,
    Column("mean_ns", "float64", "ns", "mean of the kernels' own durations"),
    Column("min_ns", "int64", "ns", "shortest"),
    Column("max_ns", "int64", "ns", "longest"),
    Column(
        "op",
        "object",
        "",
        'the op that launched most of its time; for a kernel of torch.compile, the ops that it fuses ("fused: add, gelu")',
    ),
    Column("layer", "object", "", "the layer type with most of its time"),
    Column("occupancy", "float64", "", "mean estimated occupancy; NaN: not recorded"),
    *PLACED,
)

PHASES = Table(
    "phases",
    "Phases of the workload: prefill, decode, forward, backward, optimizer. Without ranges, phases of training are "
    "recognized by autograd's ops.",
    Column("name", "object", "", "phase"),
    Column("calls", "int64", "", "number of times that it ran"),
    Column(
        "wall_ns",
        "int64",
        "ns",
        "host time inside its ranges; without ranges, from the first to the last launch in each step",
    ),
    *TIMES,
    Column("kernels", "int64", "", "device work items"),
    *COSTED,
)


def _ratio(of: str) -> tuple[Column, Column, Column]:
    """Return the columns with the median and the spread of the ratio of measured to counted FLOPs or bytes."""
    return (
        Column(f"{of}_ratio", "float64", "", "measured over counted: median of the kernels; NaN: none counted"),
        Column(f"{of}_ratio_p10", "float64", "", "10th percentile of the kernels"),
        Column(f"{of}_ratio_p90", "float64", "", "90th percentile of the kernels"),
    )


COUNTERS_COMPARISON = Table(
    "counters_comparison",
    "Measured and counted FLOPs and bytes by op family, for kernels that Nsight Compute measured and whose cost is known.",
    Column("family", "object", "", "family of the op: gemm, attention, ..."),
    Column("kernels", "int64", "", "kernels measured"),
    SHARE,
    Column("counted_flops", "float64", "FLOP", "counted from shapes and dtypes; NaN: none known"),
    Column("measured_flops", "float64", "FLOP", "measured; NaN: not measured"),
    *_ratio("flops"),
    Column("counted_bytes", "float64", "B", "compulsory bytes, counted from shapes and dtypes; NaN: none known"),
    Column("measured_bytes", "float64", "B", "read from and written to device memory, measured; NaN: not measured"),
    *_ratio("bytes"),
)

FUSION_PLAN = Table(
    "fusion_plan",
    "Groups of ops of a step that one kernel could replace, with a launch configuration for the GPU. Equal groups of all "
    "layers are one row.",
    Column("number", "int64", "", "its number, by which `fuse --group` and `verify --apply fused:N` name it"),
    Column("basis", "object", "", "how the groups were found: by data flow, or by launch order if no graph is kept"),
    Column("kernel", "object", "", 'the kernel that `fuse` writes for it; "": none'),
    Column("library", "object", "", 'equivalent of a library or of torch.compile; "": none is known'),
    Column(
        "pattern", "object", "", "QKV projection, add + norm, rotary embedding, gated activation, cross entropy, ..."
    ),
    Column("layer", "object", "", "path of the layer, its number as *"),
    Column("layer_type", "object", "", 'class of the layer; "": unknown'),
    Column("ops", "object", "", "the ops of one group, in launch order"),
    Column("inputs", "object", "", 'types and shapes of the tensors that one group reads; "": no graph is kept'),
    Column("outputs", "object", "", 'types and shapes of the tensors that one group writes; "": no graph is kept'),
    Column("layers", "int64", "", "number of layers with such a group"),
    Column("groups", "int64", "", "number of groups in the step"),
    Column("launches_saved", "int64", "", "launches saved per step"),
    Column("bytes_saved", "float64", "B", "compulsory bytes saved per step"),
    Column("saved_ns", "int64", "ns", "expected device time saved per step"),
    Column("bytes_before", "float64", "B", "compulsory bytes of the ops per step"),
    Column("bytes_after", "float64", "B", "compulsory bytes of the kernels per step"),
    Column("before_ns", "int64", "ns", "device time of the ops per step"),
    Column("after_ns", "int64", "ns", "expected device time of the kernels per step"),
    Column("after_low_ns", "int64", "ns", "its lower end"),
    Column("after_high_ns", "int64", "ns", "its upper end"),
    Column("measured_ns", "float64", "ns", "device time of the kernels per step as `fuse` timed them; NaN: not timed"),
    Column(
        "compiled_ns",
        "float64",
        "ns",
        "device time of torch.compile's kernels for the same ops, timed alternately with them; NaN: not timed",
    ),
    Column(
        "roof_fraction",
        "float64",
        "",
        "bandwidth that the timed kernel reached over that of a copy; NaN: not timed, or compute-bound",
    ),
    Column("reason", "object", "", 'the limit of the GPU that chose the tile; "": a library chooses'),
    Column("tile", "object", "", "what one block computes: elements, or rows x columns x depth of a GEMM"),
    Column("grid", "int64", "", "blocks"),
    Column("warps", "int64", "", "warps of a block"),
    Column("stages", "int64", "", "pipeline stages (loads in flight); 1: no pipeline"),
    Column("shared_bytes", "int64", "B", "shared memory per block"),
    Column("registers", "int64", "", "estimated registers per thread"),
    Column("occupancy", "float64", "", "resident warps over the maximum, with enough blocks"),
)

PREDICTED_WORK = Table(
    "predicted_work",
    "The expected change of a prediction on the device: work of a step by class of layer, before and after.",
    Column(
        "applied",
        "object",
        "",
        "optimizations, joined with +; before is the step with all except the last",
    ),
    Column("part", "object", "", "class of the layer, for its own work; class of op if the trace has no layers"),
    Column("before_ns", "int64", "ns", "busy time of a step before"),
    Column("after_ns", "int64", "ns", "busy time of a step after"),
    Column("before_flops", "float64", "FLOP", "floating-point operations of a step before; NaN: none known"),
    Column("after_flops", "float64", "FLOP", "floating-point operations of a step after"),
    Column("before_bytes", "float64", "B", "compulsory bytes of a step before; NaN: none known"),
    Column("after_bytes", "float64", "B", "compulsory bytes of a step after"),
    Column("before_precision", "object", "", 'precision of most FLOPs before; "": none known'),
    Column("after_precision", "object", "", "precision of most FLOPs after"),
)

STEPS = Table(
    "steps",
    "Steps. A trace without markers and repetitions has one row. Steps without work, or cut off by the recording, are left "
    "out, which is reported as a problem.",
    Column("step", "int64", "", "index"),
    Column(
        "start_ns",
        "int64",
        "ns",
        "start on the host; for a step that overlaps the next, start of its first device work",
    ),
    Column("host_start_ns", "int64", "ns", "start on the host"),
    Column(
        "wall_ns",
        "int64",
        "ns",
        "until the end of its range or of its last device work; for a step that overlaps the next, until the next one's "
        "first device work: the period of the run",
    ),
    Column("busy_ns", "int64", "ns", "device busy time"),
    Column("idle_ns", "int64", "ns", "wall minus busy"),
    Column("kernels", "int64", "", "device work items"),
)

RANGES = Table(
    "ranges",
    "Ranges and modules by name, with the device work launched inside them, projected as nsys projects NVTX ranges.",
    Column("category", "object", "", "range, or module"),
    Column("name", "object", "", "name as recorded"),
    Column("calls", "int64", "", "number of calls that launched work"),
    Column("cpu_ns", "int64", "ns", "host time of these calls"),
    Column("projected_ns", "int64", "ns", "from the start of the first work launched inside to the end of the last"),
    Column("mean_ns", "float64", "ns", "mean projection"),
    Column("min_ns", "int64", "ns", "shortest projection"),
    Column("max_ns", "int64", "ns", "longest projection"),
    Column("kernels", "int64", "", "device work items launched inside"),
    Column("level", "float64", "", "mean number of such ranges around it on its thread"),
    Column("children", "float64", "", "mean number of such ranges directly inside it"),
)

PROJECTIONS = Table(
    "projections",
    "Each range, module and op that launched device work, and when that ran; in HOST's order.",
    Column("row", "int64", "", "row in host"),
    Column("start_ns", "int64", "ns", "start of the first work launched inside"),
    Column("duration_ns", "int64", "ns", "from there to the end of the last"),
    Column("items", "int64", "", "device work items launched inside"),
    Column("level", "int64", "", "number of such rows around it on its thread"),
    Column("children", "int64", "", "number of such rows directly inside it"),
)
