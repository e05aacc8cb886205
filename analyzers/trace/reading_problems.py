"""The definition of a kind of problem."""

from typing import Literal

import msgspec

Severity = Literal["info", "warning", "error"]


class Kind(msgspec.Struct, frozen=True):
    """A kind of problem.

    `message` may use {count}, {detail}, {s} (a plural s), {were} ("was" or "were"), and {one|many}, such as {has|have}.
    """

    code: str
    severity: Severity
    message: str
    advice: str


READING = (
    Kind(
        "truncated",
        "error",
        "The trace is cut off: {detail}.",
        "Everything before the cut is analyzed. Copy or export the trace again for the rest.",
    ),
    Kind(
        "repaired-events",
        "info",
        "{count} event{s} of invalid JSON {were} repaired (a quote or backslash in a name, NaN, a stray comma).",
        "Nothing is lost. Avoid quotes and backslashes in record_function names.",
    ),
    Kind(
        "skipped-events",
        "warning",
        "{count} event{s} could not be read and {were} left out.",
        "Shares and totals miss them. Export the trace again if they matter.",
    ),
    Kind(
        "dropped-events",
        "error",
        "The recorder lost events: at least {count} packet{s} {were} dropped while recording.",
        "Times and counts miss them. Record fewer steps, or with larger buffers.",
    ),
    Kind(
        "more-events",
        "warning",
        "{count} event{s} after the end of the first list of events {were} not read ({detail}).",
        "The file contains several traces. Split it, and analyze each separately.",
    ),
    Kind(
        "trailing-text",
        "info",
        "{count} byte{s} after the end of the trace {were} not read; {it contains|they contain} no events.",
        "Nothing of the trace is lost. Something was appended to the file.",
    ),
    Kind(
        "trailing-bytes",
        "warning",
        "{count} byte{s} after the end of the compressed data {were} not read; {it is|they are} not gzip.",
        "Something was appended to the file, or a part of it is damaged. Compress or copy the trace again.",
    ),
    Kind(
        "impossible-values",
        "warning",
        "{count} impossible value{s} {were} left out{detail}.",
        "They are shares above 100 %, or more data or work than any GPU holds or does. Record or export them again.",
    ),
    Kind(
        "bad-utf8",
        "info",
        "{count} event{s} contained invalid UTF-8, which was replaced.",
        "Only names are affected. Avoid such bytes in record_function names.",
    ),
    Kind(
        "negative-duration",
        "warning",
        "{count} event{s} had a negative duration, taken as 0.",
        "Clocks jumped while recording; the times around these events are less certain.",
    ),
    Kind(
        "missing-duration",
        "warning",
        "{count} event{s} had no duration, taken as 0.",
        "They had not ended when recording stopped. End the profiled region before the profiler stops.",
    ),
    Kind(
        "capped-duration",
        "warning",
        "{count} event{s} lasted longer than possible (past the end of later work on the same stream, or for over a "
        "day) and {were} capped.",
        "The profiler's end times were wrong; the capped times are upper bounds.",
    ),
    Kind(
        "unended-ranges",
        "info",
        "{count} range{s} or call{s} had not ended when the recording did; {it is|they are} taken to last until then.",
        "The work inside them is counted in full. End the profiled region before recording stops.",
    ),
    Kind(
        "graphs-as-a-whole",
        "info",
        "{count} run{s} of CUDA graphs {were} traced as a whole; each counts as one kernel.",
        "For their kernels, record with nsys profile --cuda-graph-trace=node, which costs some time.",
    ),
    Kind(
        "unread-table",
        "error",
        "{count} row{s} of a table {were} lost: {detail}.",
        "The report was changed, or is of an unknown version of nsys. Export it again: nsys export --type sqlite.",
    ),
    Kind(
        "lacking-columns",
        "warning",
        "The report lacks {count} column{s}: {detail}.",
        "What they hold is unknown: devices, streams, launches or names. The report was changed, or is of an unknown "
        "version of nsys. Export it again: nsys export --type sqlite.",
    ),
    Kind(
        "mistyped-values",
        "warning",
        "{count} value{s} of another type than {its|their} column's {were} left out: {detail}.",
        "The report was changed, or is of an unknown version of nsys. Export it again: nsys export --type sqlite.",
    ),
    Kind(
        "unnamed-events",
        "warning",
        "{count} kernel{s} or call{s} {were} read without a name, which the report lacks.",
        "Their times count; they cannot be told apart. Export the report again: nsys export --type sqlite.",
    ),
    Kind(
        "unused-activity",
        "info",
        "The trace contains {count} event{s} of kinds that are not used: {detail}.",
        "They are not GPU work. View them in Nsight Systems or Perfetto.",
    ),
    Kind(
        "unused-gpu-metrics",
        "info",
        "The report contains {count} sample{s} of GPU metrics, which are not used yet.",
        "Nothing is lost; view them in Nsight Systems.",
    ),
    Kind(
        "implausible-time",
        "warning",
        "{count} event{s} started at an impossible time and {were} left out.",
        "Their time was zero, missing, or months away from the rest. Export the trace again if they matter.",
    ),
    Kind(
        "unpaired-events",
        "warning",
        "{count} begin or end event{s} had no counterpart and {were} left out.",
        "They began before recording, or ended after it.",
    ),
    Kind(
        "no-timeline",
        "info",
        "The report measures {count} kernel{s} separately and has no timeline; {it is|they are laid "
        "end to end, as} one step.",
        "Give it to a trace of the same run with --counters for idle time, ops and layers.",
    ),
    Kind(
        "no-host-timeline",
        "info",
        "The trace has no host events; a scope lasts from its first kernel to its last.",
        "Why the device is idle is unknown. Record the run with torch.profiler, too, for causes and predictions.",
    ),
    Kind(
        "summed-launches",
        "info",
        "The profile sums the launches of each kernel in a scope; they are laid end to end, each with the mean time.",
        "Record a timeline for idle time: proton.start(NAME, data='trace').",
    ),
    Kind(
        "unknown-category",
        "info",
        "{count} event{s} of {an unknown category|unknown categories} {were} left out: {detail}.",
        "If this is work of a device, report its category.",
    ),
    Kind(
        "secrets-in-metadata",
        "warning",
        "The trace's metadata contains {count} {entry|entries} that {looks|look} like an environment or a secret; none "
        "was read.",
        "Remove them before sharing the trace file, and revoke any token that was shared.",
    ),
    Kind(
        "unreadable-metadata",
        "info",
        "Part of the trace's metadata could not be read: {detail}.",
        "The events are not affected; the name of the device, the rank or the settings of the capture may be missing.",
    ),
    Kind(
        "no-device-events",
        "info",
        "The trace contains no work of a device; times are of the host.",
        "To profile a GPU, record with ProfilerActivity.CUDA (XPU, ...; nsys: -t cuda) on a machine that has one.",
    ),
    Kind(
        "no-host-events",
        "warning",
        "The trace contains no host events; device work cannot be attributed to ops or layers.",
        "Record with ProfilerActivity.CPU as well (nsys: -t cuda,nvtx).",
    ),
    Kind(
        "no-shapes",
        "warning",
        "Ops carry no input shapes; FLOPs and bytes are unknown.",
        "Record with record_shapes=True (of torch.profiler, or of emit_nvtx under nsys).",
    ),
    Kind(
        "duplicate-correlations",
        "info",
        "{count} runtime call{s} {shares|share} the correlation id of another one.",
        "A kernel is attributed to one of the calls; merged traces of several processes share ids.",
    ),
)
