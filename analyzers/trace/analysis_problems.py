"""The kinds of problems of an analysis."""

from tracekit.analyzers.trace.reading_problems import Kind

ANALYZING = (
    Kind(
        "unknown-gpu",
        "warning",
        "The GPU that ran the work{detail} is unknown; nothing is placed on a roofline.",
        "Name it with --gpu; `tracekit gpus` lists the known ones.",
    ),
    Kind(
        "gpu-as-named",
        "info",
        "The trace does not name the GPU that ran the work; the given one, {detail}, is assumed.",
        "Roofline fractions are wrong if another GPU ran it.",
    ),
    Kind(
        "synchronized-modules",
        "info",
        "Timed between synchronizations, as tutorials do, {detail}.",
        "Compare such a table with the column synchronized_share, and decide by the shares of the work.",
    ),
    Kind(
        "does-not-fit",
        "error",
        "The run does not fit the GPU: {detail}. Its times are those of a GPU with more memory.",
        "The recommendations begin with remedies that make it fit; `tracekit predict` tries others.",
    ),
    Kind(
        "no-layers",
        "info",
        "The trace marks no layers.",
        "Capture with tracekit, wrap the model in tracekit.annotate(model), or record with with_stack=True.",
    ),
    Kind(
        "no-launch",
        "info",
        "{count} device event{s} {has|have} neither a launching call nor an op in the trace.",
        "They were launched before recording began, or by code that is not recorded. Add warm-up steps to the profile.",
    ),
    Kind(
        "launch-without-op",
        "info",
        "{count} device event{s} {were} launched outside every recorded op.",
        "Record the host's ops too (ProfilerActivity.CPU); custom kernels are ops when registered with torch.library.",
    ),
    Kind(
        "graph-not-mapped",
        "warning",
        "{count} device event{s} of CUDA graphs, {detail} of the busy time, cannot be attributed to ops: the trace "
        "contains no capture of their graph, or several that fit. Their layer is the one around the graph's launch.",
        "Record the capture too: start the profiler before the warm-up in which graphs are made, or name its own "
        "traces with --captures. Or profile once without graphs (enforce_eager, no mode=reduce-overhead).",
    ),
    Kind(
        "merged-captures",
        "info",
        "{count} capture{s} of CUDA graphs in {detail} {were} put before the trace of the replays.",
        "Kernels of a graph get the ops and layers of the capture that fits it.",
    ),
    Kind(
        "files-without-captures",
        "warning",
        "{count} file{s} of captures {were} left out: {it contains|they contain} no capture, or none of this rank.",
        "Name the traces that were recorded while graphs were captured.",
    ),
    Kind(
        "device-before-launch",
        "warning",
        "{count} device event{s} {starts before its|start before their} launch, by clocks that "
        "disagree; the delay is taken as 0.",
        "Times on the device are correct; launch delays and gaps at the borders of steps are less certain.",
    ),
    Kind(
        "above-roof-l2",
        "info",
        "{count} device event{s} ran faster than the memory bandwidth allows; {its|their} data fit the L2 cache.",
        "Nothing is wrong. In a larger model, with a cold cache, they would be slower.",
    ),
    Kind(
        "above-roof",
        "warning",
        "{count} device event{s} ran faster than the roofline allows (the worst: {detail}).",
        "Their FLOPs or bytes are overestimated, or the GPU is another one. Do not rely on their roof fractions.",
    ),
    Kind(
        "bound-unknown",
        "info",
        "The bound of {count} work item{s}, {detail} of the busy time, is unknown.",
        "Record with record_shapes=True on a known GPU.",
    ),
    Kind(
        "collective-not-modelled",
        "info",
        "{count} collective{s} {has|have} no recorded size, or no recorded group of GPUs on one host; for another GPU, "
        "the measured time is kept.",
        "Record with torch 2.3 or later, which records size and group. The network between hosts is not modelled.",
    ),
    Kind(
        "estimated-bytes",
        "info",
        "The bytes of {count} kernel{s} are those of {its|their} recorded inputs, read once; the FLOPs are unknown.",
        "Their roof fractions are estimates.",
    ),
    Kind(
        "measured-counters",
        "info",
        "FLOPs or bytes of {count} of {detail} were measured by Nsight Compute; all others are counted.",
        "It measures each kernel separately with cold caches; in the run, more of the data may come from the L2.",
    ),
    Kind(
        "counters-unmatched",
        "warning",
        "{count} measured kernel{s} matched none of the trace by name, grid and block{detail}.",
        "Measure the model, shapes, types and versions of the trace.",
    ),
    Kind(
        "counters-disagree",
        "warning",
        "Measured and counted differ by more than a factor of two in {count} place{s}: {detail}.",
        "The measured ones are used. Fewer measured bytes: written data was still in the L2 when the kernel ended.",
    ),
    Kind(
        "steps-set-apart",
        "info",
        "{count} step{s} without work, or cut off by the edge of the recording, {is|are} left out.",
        "Means, shares and tables are those of the other steps.",
    ),
    Kind(
        "work-outside-steps",
        "info",
        "{count} work item{s}, {detail} of the busy time, ran outside the steps.",
        "Bounds, shares and the tables of layers, ops and kernels are those of the steps.",
    ),
    Kind(
        "gpu-not-recorded",
        "warning",
        "{count} calls put work on a GPU, and the trace contains none of it: the GPU was not recorded.",
        "Record it with ProfilerActivity.CUDA, or with nsys profile -t cuda,nvtx. Another profiler on the GPU, or a "
        "container without the right to count, prevents it.",
    ),
    Kind(
        "step-not-reproduced",
        "warning",
        "Simulated unchanged, the step takes {detail}: more than 5 % off. Predictions keep the difference as it is.",
        "Mark steps with prof.step() or a range around each, record host and device, and warm up for a few steps. "
        "tracekit run or tracekit profile also time the step without the profiler.",
    ),
    Kind(
        "busy-exceeds-latency",
        "warning",
        "In the trace, the device was busy for longer than a step takes without the profiler; shares are scaled down.",
        "The profiler slowed the device, or the runs differ. Profile again with more warm-up steps.",
    ),
    Kind(
        "modelled-uncompiled",
        "warning",
        "The program uses torch.compile, and is modelled without it: fused kernels and graph breaks are absent.",
        "Measure it on a GPU to count graph breaks; `torch._dynamo.explain` lists them anywhere.",
    ),
    Kind(
        "ranks-missing",
        "warning",
        "Traces of {count} rank{s} are missing: {detail} were read.",
        "Waits for ranks without a trace count as transfer. Give the traces of all ranks.",
    ),
    Kind(
        "rank-unreadable",
        "error",
        "{count} trace{s} could not be read and {were} left out: {detail}.",
        "Export them again. The results are those of the other traces.",
    ),
    Kind(
        "rank-copied",
        "warning",
        "{count} trace{s} {were} left out: {detail}.",
        "A rank counts once. Remove the copies from the folder.",
    ),
    Kind(
        "rank-foreign",
        "error",
        "{count} trace{s} of another job {were} left out: {detail}.",
        "Name the traces of one job. The results are those of the other traces.",
    ),
    Kind(
        "ranks-by-order",
        "warning",
        "Neither the traces nor their names state their ranks; they are numbered in the order of their names.",
        "Put the rank into the name of the file, such as rank-3.json.gz.",
    ),
    Kind(
        "operations-unusable",
        "warning",
        "{count} operation{s} without a finite time, or with a number out of range, {were} left out.",
        "Times are in seconds from the start of the step; ranks, stages and steps are whole numbers.",
    ),
    Kind(
        "operations-unknown",
        "warning",
        "{count} operation{s} of unknown types {were} left out: {detail}.",
        "What they wait for is not known, so the replay does not contain them.",
    ),
    Kind(
        "operations-repeated",
        "warning",
        "{count} operation{s} occurred twice and {were} counted once.",
        "The same worker, step, type and number: the file may hold a part twice.",
    ),
    Kind(
        "operations-unpaired",
        "warning",
        "{count} operation{s} between stages {lacks|lack} the other side; the typical transfer is assumed.",
        "Export the operations of all workers in the same steps.",
    ),
    Kind(
        "operations-circular",
        "warning",
        "{count} step{s} whose operations would wait for each other in a circle {were} left out.",
        "Numbers of operations (seq_id) may be mixed up between workers.",
    ),
    Kind(
        "steps-partial",
        "warning",
        "{count} step{s} without the operations of every worker {were} left out.",
        "Export the same steps of all workers.",
    ),
    Kind(
        "replay-unlike",
        "warning",
        "The replay without stragglers removed takes {detail} of the recorded time.",
        "Most of a step is outside the recorded operations, or their order is not known to tracekit: trust the order "
        "of the workers, not the slowdown.",
    ),
    Kind(
        "collective-missing",
        "error",
        "{count} collective{s} {were} not called on every rank of the group; missing on {detail}.",
        "A job whose ranks make different calls hangs or exchanges wrong data. Look at what these ranks skip; if their "
        "recording was cut off, record the same steps on all ranks.",
    ),
    Kind(
        "collective-uneven",
        "error",
        "{count} call{s} of a collective had another size than on the other ranks: {detail}.",
        "Ranks that exchange messages of different sizes are desynchronised, or pad their inputs differently.",
    ),
    Kind(
        "no-collectives",
        "warning",
        "The ranks share no collectives.",
        "It is unknown which rank waits for which. Record the steps in which the ranks communicate.",
    ),
    Kind(
        "clocks-not-aligned",
        "error",
        "The clocks of the ranks cannot be compared: {detail}. No straggler is named.",
        "Record more collectives in which all ranks take part, on all ranks at the same time.",
    ),
    Kind(
        "clocks-apart",
        "info",
        "{count} clock{s} {were} more than 1 ms from the job's (at most {detail}), and {were} corrected.",
        "Times across ranks are correct. Viewers that merge the raw traces show them shifted.",
    ),
)
