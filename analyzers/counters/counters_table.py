"""Defines the table COUNTERS: the measurements of Nsight Compute for each kernel launch."""

from tracekit.analyzers.schema import Column, Table

COUNTERS = Table(
    "counters",
    "Kernel launches that Nsight Compute measured, in order; every number is measured. Absent metrics are NaN.",
    Column("name", "category", "", "kernel name as reported"),
    Column("grid", "object", "", 'grid size, "(8, 36, 1)"; "": not reported'),
    Column("block", "object", "", 'block size, "(128, 1, 1)"; "": not reported'),
    Column("blocks", "int64", "", "thread blocks in the grid; -1: not reported"),
    Column("threads_per_block", "int32", "", "threads in a block; -1: not reported"),
    Column("device", "int32", "", "device index; -1: not reported"),
    Column("stream", "int64", "", "stream id; -1: not reported"),
    Column("registers", "int32", "", "registers per thread; -1: not reported"),
    Column(
        "duration_ns", "int64", "ns", "duration while it was measured, at the clocks and caches of the tool; -1: none"
    ),
    Column("fp16_flops", "float64", "FLOP", "half-precision instructions outside the tensor cores, 2 per multiply-add"),
    Column("fp32_flops", "float64", "FLOP", "single-precision instructions, 2 per multiply-add"),
    Column("fp64_flops", "float64", "FLOP", "double-precision instructions outside the tensor cores"),
    Column("tensor_flops", "float64", "FLOP", "tensor cores, 2 per multiply-add, including integer operations"),
    Column("flops", "float64", "FLOP", "sum of the pipes; NaN unless single precision and tensor cores were measured"),
    Column("precision", "category", "", 'precision of most FLOPs; "": none, or a half-precision mix'),
    Column("dram_read_bytes", "float64", "B", "read from device memory"),
    Column("dram_write_bytes", "float64", "B", "written to device memory"),
    Column("dram_bytes", "float64", "B", "read from and written to device memory"),
    Column("l2_bytes", "float64", "B", "passed through the L2 cache"),
    Column("dram_throughput", "float64", "", "fraction of the peak of device memory, 0 to 1"),
    Column("sm_throughput", "float64", "", "fraction of the peak of the busiest unit of the SMs, 0 to 1"),
    Column("occupancy", "float64", "", "active warps over the maximum, 0 to 1"),
)
