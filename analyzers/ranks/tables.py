"""The tables of a job of several ranks, with documented columns."""

from tracekit.analyzers.core import STEP, Column, Table

_RANK = Column("rank", "int64", "", "rank of the process in the job")
_START = Column("start_ns", "int64", "ns", "start, after the base time of the rank's trace")
_WALL = Column("wall_ns", "int64", "ns", "wall time")
_OWN_SPAN = (
    Column("own_start_ns", "int64", "ns", "own time (without waits for other ranks) from the base time to the start"),
    Column("own_end_ns", "int64", "ns", "own time from the base time to the end"),
    Column("device_start_ns", "int64", "ns", "own time to the start if the host is never late"),
    Column("device_end_ns", "int64", "ns", "own time to the end if the host is never late"),
    Column(
        "synced_ns",
        "int64",
        "ns",
        "own time beyond the device's when the host last waited for the device since the previous call (in a step: "
        "since its last call); -1: it did not",
    ),
)
_COUNTS = (
    Column("flops", "float64", "FLOP", "floating-point operations; 0: none known"),
    Column("bytes", "float64", "B", "compulsory bytes; 0: none known"),
)
_STEP_TIMES = (
    Column("compute_ns", "int64", "ns", "time in which the device (on a CPU, any thread) computes"),
    Column("communication_ns", "int64", "ns", "time in which a collective runs, waiting for other ranks included"),
    Column("exposed_communication_ns", "int64", "ns", "communication while nothing is computed"),
    Column("exposed_copy_ns", "int64", "ns", "copies and sets while nothing is computed or communicated"),
    Column("idle_ns", "int64", "ns", "the rest of the step"),
)

RANK_STEPS = Table(
    "rank_steps",
    "The steps of one rank. Compute, exposed communication, exposed copies and idle time sum to the wall time.",
    STEP,
    _START,
    _WALL,
    *_STEP_TIMES,
    *_OWN_SPAN,
    *_COUNTS,
)

RANK_IDLE = Table(
    "rank_idle",
    "The idle time of one rank's steps by cause.",
    STEP,
    Column("cause", "category", "", "as in the table idle_causes"),
    Column("idle_ns", "int64", "ns", "idle time with this cause"),
)

RANK_CALLS = Table(
    "rank_calls",
    "The collectives of one rank, in order of their start.",
    STEP,
    Column("group", "category", "", 'name of the process group; "": not recorded'),
    Column("sequence", "int64", "", "number of the call in its group; -1: not recorded"),
    Column("kind", "category", "", 'all-reduce, all-gather, ..., send, receive; "": unknown'),
    Column("name", "category", "", "name of the kernel, or of the range on a CPU"),
    Column("phase", "category", "", 'phase of the step; "": not known'),
    Column("dtype", "category", "", 'type of the elements; "": not recorded'),
    Column("bytes", "int64", "B", "the larger of the send and receive buffers; 0: not recorded"),
    Column("peer", "int64", "", "rank of the other side of a send or receive; -1: none, or not recorded"),
    Column("stream", "int64", "", "stream id; on a CPU the number of the thread"),
    _START,
    Column("end_ns", "int64", "ns", "end, after the base time of the rank's trace"),
    Column("host_start_ns", "int64", "ns", "time at which the host issued it, after the base time; -1: not recorded"),
    *_OWN_SPAN,
    Column("beside_ns", "int64", "ns", "part of its time in which the rank computes or copies"),
    Column("blocks", "bool", "", "whether nothing is computed when it ends: the next computation may wait for it"),
)

RANK_WORK = Table(
    "rank_work",
    "The work of one rank, without communication, by phase, layer and op: sums over its steps.",
    Column("phase", "category", "", 'forward, backward, ...; "": none'),
    Column("layer", "category", "", 'path of the layer; "": none'),
    Column("op", "category", "", 'name of the op that launched the work; "": unknown'),
    Column("family", "category", "", 'gemm, attention, ...; "": unknown'),
    Column("calls", "int64", "", "pieces of work"),
    Column("duration_ns", "int64", "ns", "sum of their own durations"),
    *_COUNTS,
)

RANKS = Table(
    "ranks",
    "The ranks of a job; times are means over the steps that all ranks have.",
    _RANK,
    Column("host", "int64", "", "number of the host; -1: not recorded"),
    Column("steps", "int64", "", "steps that all ranks have"),
    Column("wall_ns", "float64", "ns", "wall time of a step"),
    *(Column(column.name, "float64", column.unit, column.meaning) for column in _STEP_TIMES),
    Column("overlap", "float64", "", "fraction of the communication that overlaps with computation; NaN: none"),
    Column("own_ns", "float64", "ns", "own time of a step, without waits for other ranks"),
    Column("imposed_ns", "float64", "ns", "time per step that other ranks, in sum, wait for this one"),
    Column("waiting_ns", "float64", "ns", "time per step that this rank waits for others in collectives"),
    Column(
        "cost_share",
        "float64",
        "",
        "fraction of a step that is saved if this rank takes the own time of its typical peer",
    ),
    Column("clock_offset_ns", "int64", "ns", "offset of its clock ahead of the job's, at the start"),
    Column("clock_drift_ppm", "float64", "1e-6", "rate of its clock above that of the job's"),
)

COLLECTIVES = Table(
    "job_collectives",
    "The collectives of a job, one row a call of all its ranks, in order of time.",
    Column("group", "int64", "", "row in groups"),
    Column("sequence", "int64", "", "number of the call in its group, or in its kind of a group"),
    Column("kind", "category", "", 'all-reduce, all-gather, ...; "": unknown'),
    STEP,
    Column("ranks", "int64", "", "ranks whose traces contain it"),
    Column("bytes", "int64", "B", "size of the message; 0: not recorded"),
    Column("start_ns", "int64", "ns", "arrival of the first rank, on the job's clock"),
    Column("end_ns", "int64", "ns", "end, on the job's clock"),
    Column("skew_ns", "int64", "ns", "time from the first to the last arrival"),
    Column("wait_ns", "int64", "ns", "time that the ranks, in sum, waited for the last one"),
    Column("transfer_ns", "int64", "ns", "time from the last arrival to the end"),
    Column("last_rank", "int64", "", "rank that arrived last"),
    Column(
        "overlap",
        "float64",
        "",
        "largest fraction of its transfer in which its ranks compute or copy, mean over the ranks; NaN: no time",
    ),
    Column("algorithm_bandwidth", "float64", "B/s", "bytes divided by transfer time; NaN: bytes not recorded"),
    Column("bus_bandwidth", "float64", "B/s", "algorithm bandwidth times the bytes that a link carries for each byte"),
    Column("roof_fraction", "float64", "", "bus bandwidth divided by that of the link; NaN: link not known"),
)

GROUPS = Table(
    "job_groups",
    "The groups of ranks that communicate.",
    Column("name", "object", "", "name of the process group"),
    Column("size", "int64", "", "ranks in the group"),
    Column("traced", "int64", "", "ranks of the group with traces"),
    Column("ranks", "object", "", "the ranks, as text"),
    Column(
        "parallelism",
        "object",
        "",
        'parallelism that the group serves: data, fsdp, tensor, pipeline, expert; "": unknown',
    ),
    Column("calls", "int64", "", "collectives"),
    Column("bytes", "int64", "B", "bytes of a rank's messages per step"),
    Column("wait_ns", "float64", "ns", "mean time per step that a rank waits"),
    Column("transfer_ns", "float64", "ns", "mean time per step of its transfers"),
    Column("bus_bandwidth", "float64", "B/s", "bytes that links carry, divided by the transfer time; NaN: not known"),
    Column("overlap", "float64", "", "fraction of the calls' time in which their rank computes, 0 to 1"),
    Column(
        "regathered",
        "float64",
        "",
        "for FSDP, bytes gathered in the backward pass, divided by those in the forward pass; NaN: others",
    ),
    Column(
        "imbalance",
        "float64",
        "",
        "largest load of a rank, divided by the mean: for experts bytes per step, for a pipeline own time of a stage; "
        "NaN: others",
    ),
)

GROUP_WAITS = Table(
    "group_waits",
    "For each group and each of its ranks: time that the rank waits in the group's calls, and that others wait for it.",
    Column("group", "object", "", "name of the process group"),
    _RANK,
    Column("waiting_ns", "float64", "ns", "mean time in a step that the rank waits in calls of the group"),
    Column("imposed_ns", "float64", "ns", "mean time in a step that the other ranks, summed, wait there for this one"),
)

RANK_BY_STEP = Table(
    "ranks_by_step",
    "The time of each rank in each step of a job.",
    _RANK,
    STEP,
    _WALL,
    *_STEP_TIMES,
    Column("own_ns", "int64", "ns", "time without exposed communication"),
    Column("imposed_ns", "float64", "ns", "time that other ranks, in sum, wait for this one"),
    Column("waiting_ns", "float64", "ns", "time that it waits for other ranks in collectives"),
)

CRITICAL_PATH = Table(
    "critical_path",
    "The simulated chain of own time and transfers that makes up the steps of a job, over all ranks.",
    STEP,
    Column("kind", "category", "", "own (time of a rank) or transfer (of a collective that all ranks have reached)"),
    Column("rank", "int64", "", "rank whose time it is; -1: a transfer"),
    Column("group", "int64", "", "row in job_groups of a transfer; -1: own time"),
    Column("start_ns", "float64", "ns", "start, on the job's clock"),
    Column("duration_ns", "float64", "ns", "duration"),
)

_SLOWDOWN = "replayed time if only these operations keep their durations, divided by the ideal"

REPLAYED_WORKERS = Table(
    "replayed_workers",
    "The workers of a replayed job, slowest first.",
    Column("rank", "int64", "", "rank of the process in the job; -1: not recorded"),
    Column("dp_rank", "int64", "", "rank in the data-parallel group"),
    Column("stage", "int64", "", "stage of the pipeline"),
    Column("slowdown", "float64", "", "the smaller of the slowdowns of its data-parallel rank and of its stage"),
    Column("compute", "float64", "", "its mean computation of a step, divided by that of its stage's workers"),
    Column("slowest", "bool", "", "whether it is among the 3 % that are replaced together"),
)

REPLAYED_PARTS = Table(
    "replayed_parts",
    "What a job's slowdown is attributed to: its types of operations, stages and data-parallel ranks.",
    Column("of", "object", "", "operation, stage or dp_rank"),
    Column("name", "object", "", "type of the operation, or number of the stage or rank"),
    Column("count", "int64", "", "operations"),
    Column("ideal_ns", "float64", "ns", "duration that replaces that of each; NaN: several types"),
    Column("slowdown", "float64", "", _SLOWDOWN),
)

REPLAYED_STEPS = Table(
    "replayed_steps",
    "The steps of a replayed job.",
    STEP,
    Column("recorded_ns", "float64", "ns", "time from the first start to the last end of an operation"),
    Column("replayed_ns", "float64", "ns", "replayed with its own durations, without delays of launches"),
    Column("ideal_ns", "float64", "ns", "replayed with the ideal durations"),
    Column("slowdown", "float64", "", "replayed_ns divided by ideal_ns"),
)
