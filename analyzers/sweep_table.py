"""The table of a sweep: a row for the prediction of each point of the grid, and one for its measurement."""

from tracekit.analyzers.schema import Column, Table

MODELLED, MEASURED = "modelled", "measured"
NUMBERS = (
    *("latency_ns", "latency_low_ns", "latency_high_ns", "rate", "speedup", "speedup_low", "speedup_high"),
    *("memory_bytes", "idle_share"),
)
"""The columns that are NaN for a refused point."""

SWEEP = Table(
    "sweep",
    "Predictions and measurements over a grid of GPUs, batch sizes, lengths and optimizations.",
    Column("gpu", "object", "", "id of the GPU; cpu: measured on one"),
    Column("batch_size", "int64", "", "sequences or samples in a step"),
    Column("seq_len", "int64", "", "tokens of the prompt or in the KV cache; 0: the model takes no tokens"),
    Column("apply", "object", "", "optimizations, joined with +; none: the unchanged run"),
    Column("source", "object", "", "modelled (predicted) or measured"),
    Column("latency_ns", "float64", "ns", "time of a step: expected, or the measured median; NaN: refused"),
    Column("latency_low_ns", "float64", "ns", "its lower end, by the speed-up's interval; measured: 10th percentile"),
    Column("latency_high_ns", "float64", "ns", "its upper end, by the speed-up's interval; measured: 90th percentile"),
    Column(
        "rate", "float64", "1/s", "generated or read tokens per second; samples per second for a model without tokens"
    ),
    Column(
        "speedup",
        "float64",
        "",
        "speed-up over the unchanged run at the same point, timed alternately with it if measured; NaN: refused",
    ),
    Column("speedup_low", "float64", "", "its lower end; measured: of the 95 % confidence interval"),
    Column("speedup_high", "float64", "", "its upper end; measured: of the 95 % confidence interval"),
    Column("memory_bytes", "float64", "B", "peak memory; NaN: not known"),
    Column("fits", "bool", "", "whether it fits in the GPU's memory"),
    Column("idle_share", "float64", "", "part of the step in which the GPU waits for the host, 0 to 1; NaN: measured"),
    Column("largest_batch", "int64", "", "the largest batch that fits in the GPU's memory; -1: not known"),
    Column("refused", "object", "", 'why it cannot be applied, or was not measured; "": neither'),
)
