"""The table of a sweep: one row a point of the grid."""

from tracekit.analyzers.schema import Column, Table

SWEEP = Table(
    "sweep",
    "Predictions over a grid of GPUs, batch sizes, lengths and optimizations, modelled.",
    Column("gpu", "object", "", "id of the GPU"),
    Column("batch_size", "int64", "", "sequences or samples in a step"),
    Column("seq_len", "int64", "", "tokens of the prompt or in the KV cache; 0: the model takes no tokens"),
    Column("apply", "object", "", "optimizations, joined with +; none: the run as it is"),
    Column("latency_ns", "float64", "ns", "time of a step, as expected; NaN: it cannot be applied"),
    Column("latency_low_ns", "float64", "ns", "its lower end, by the interval of the speed-up"),
    Column("latency_high_ns", "float64", "ns", "its upper end, likewise"),
    Column("rate", "float64", "1/s", "tokens a second, made or read; samples a second where the model takes none"),
    Column("speedup", "float64", "", "over none at the same point; NaN: it cannot be applied"),
    Column("speedup_low", "float64", "", "its lower end"),
    Column("speedup_high", "float64", "", "its upper end"),
    Column("memory_bytes", "float64", "B", "peak memory"),
    Column("fits", "bool", "", "whether the GPU's memory holds it"),
    Column("idle_share", "float64", "", "part of the step in which the GPU waits for the host, 0 to 1"),
    Column("largest_batch", "int64", "", "the largest batch that the GPU's memory holds; -1: not known"),
    Column("refused", "object", "", 'why it cannot be applied; "": it can'),
)
