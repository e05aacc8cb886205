"""Says what a trace is of, such as a model and its workload, and what a step spends its time on."""

import re
from collections.abc import Iterator

import pandas as pd

from tracekit.analyzers.attribute import UNRECORDED_WORK, named_kind, named_precision
from tracekit.analyzers.results import Analysis, Source
from tracekit.reports.words import device, lacking, model, percent, shortened, with_article

_WRAPPERS = (
    "OptimizedModule",
    "CompiledFxGraph",
    "compiled region",
    "DistributedDataParallel",
    "FullyShardedDataParallel",
    "DataParallel",
)
_ENGINES = {"vllm": "vLLM", "sglang": "SGLang"}
_MODULES = ("tracekit ranges", "nn.Module events")
"""Sources of layers that name classes of modules. Other sources name ranges, of which several may surround the work."""
_ENDING = re.compile(r"(?:\.pt)?(?:\.trace)?\.(?:json|sqlite|pftrace|\w*trace)(?:\.gz)?$")
_MOSTLY = 0.5
_LONGEST = 42


def subjects(analysis: Analysis) -> Iterator[str]:
    """Yield, for example, "GPT-2 decode, batch 1, 512 tokens, bf16, on an H200", then the same with less detail."""
    source, what, where = analysis.source, named(analysis), _where(analysis)
    settings = [_batch(source), _length(source), source.precision]
    for kept in (settings, settings[:2], settings[:1]):
        yield ", ".join(part for part in (what, *kept, where) if part)
    for shorter in (what, what.partition(" (")[0]):
        yield " ".join(part for part in (shorter, where) if part)


def named(analysis: Analysis) -> str:
    """Return what ran, in the most telling words that the trace has."""
    source, capture = analysis.source, analysis.source.capture
    if capture and capture.model:
        return " ".join(part for part in (model(capture.model), capture.workload) if part)
    engine, root = _ENGINES.get(source.runtime, ""), _root(analysis)
    if root:
        return f"{root}{' training' if source.trains else ''}{f' in {engine}' if engine else ''}"
    name = shortened(engine or source.program or _ENDING.sub("", analysis.file), _LONGEST)
    if source.trains:
        return f"Training ({name})" if name else "Training"
    return name or "This run"


def _root(analysis: Analysis) -> str:
    """Return the class of the whole model, without wrappers of torch, or the only outermost range; "" without either.

    Most of the work is in the model. Of training, it is most of the work that is in modules, because the backward pass
    often names none.
    """
    layers = analysis.layers[analysis.layers["type"] != ""]
    inside, modules = layers[layers["depth"] == 0], analysis.source.layers_from in _MODULES
    backward = modules and analysis.source.trains
    while len(inside):
        at = int(inside["share"].to_numpy().argmax())
        most, name = float(inside["share"].iloc[at]), str(inside["type"].iloc[at])
        whole = float(inside["share"].sum()) if backward else 1.0
        if most < _MOSTLY * whole or not (modules or len(inside) == 1):
            return ""
        if name not in _WRAPPERS:
            return shortened(name, _LONGEST)
        inside = layers[layers["parent"] == inside.index[at]]
    return ""


def _batch(source: Source) -> str:
    """Return the batch of the capture, or the requests that a serving engine names."""
    if source.capture and source.capture.batch_size:
        return f"batch {source.capture.batch_size:,}"
    return f"{source.requests:,} request{'s' * (source.requests > 1)}" if source.requests else ""


def _length(source: Source) -> str:
    """Return the tokens of the prompt or the cache, and those that are generated."""
    capture = source.capture
    if capture is None or not capture.seq_len:
        return ""
    return f"{capture.seq_len:,}{f' + {capture.new_tokens:,}' if capture.new_tokens else ''} tokens"


def _where(analysis: Analysis) -> str:
    source = analysis.source
    where = "" if unrecorded_gpu(analysis) else device(source)
    return f"{'modelled for' if source.kind == 'modelled' else 'on'} {with_article(where)}" if where else ""


_UNRECORDED = {
    "gpu-not-recorded": "{count:,} calls put work on a GPU that was not recorded. Record it with ProfilerActivity.CUDA",
    "mps-not-recorded": "{count:,} ops ran on a Mac's GPU, which torch.profiler does not record",
    "gpu-not-seen": "only the host was recorded. If a GPU ran it, record that with ProfilerActivity.CUDA",
}


def unrecorded_gpu(analysis: Analysis) -> str:
    """Return that work of a GPU is missing in the trace, or may be; "" if it is not."""
    rows = zip(analysis.problems["code"].tolist(), analysis.problems["count"].tolist(), strict=True)
    return next((_UNRECORDED[code].format(count=count) for code, count in rows if code in _UNRECORDED), "")


_SAYING = {
    "compute": "compute-bound",
    "memory": "memory-bound",
    "launch": "waiting for the host",
    "latency": "in kernels too small to fill the GPU",
}
_CAUSES = {
    "data-loading": "data loading",
    "sync": "after it waited for the GPU",
    "allocation": "allocating memory",
    "compilation": "compiling",
    "garbage-collection": "collecting garbage",
    "communication": "preparing collectives",
    "transfer": "preparing copies",
}
_OTHER = "in kernels of its own"
_NAMED = 0.15
"""Smallest share of the time that is named beside the largest."""
_ALONE = 0.75
"""Share of the time beside which no other is named."""
_MOSTLY = 0.5


def spoken_shares(analysis: Analysis, most: int, remarks: int = 2) -> str:
    """Return the largest shares of a step, such as "59 % memory-bound, 39 % waiting for the host (data loading)".

    The wait for the host has as many `remarks`: its cause, and its share in the trace.
    """
    kinds = _by_kind(analysis) if analysis.bound.unknown else []
    shares = [pair for pair in _parts(analysis, remarks, kinds) if pair[1] > 0]
    if not shares:
        return "no work"
    named = [pair for at, pair in enumerate(shares[:most]) if at == 0 or (pair[1] >= _NAMED and shares[0][1] < _ALONE)]
    said = ", ".join(f"{percent(share)} {words}" for words, share in named)
    busy, by_name = analysis.busy_share, named[0] in kinds
    return f"GPU busy {percent(busy)}; {said}{_hidden(analysis)}" if busy >= 1 - _NAMED and by_name else said


def _hidden(analysis: Analysis) -> str:
    """Return the share of communication behind computation, which no share of the time shows; "" if it is little."""
    times = analysis.timeline.device
    hidden = (times.communication_ns - times.exposed_communication_ns) / max(times.span_ns, 1) if times else 0.0
    return f", and communication behind {percent(hidden)}" if hidden >= _NAMED else ""


def _parts(analysis: Analysis, remarks: int, kinds: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """Return words and shares of the time, largest first. Work whose bound is unknown has the words of its `kinds`."""
    parts = [
        (_words(analysis, bound, remarks), share) for bound, share in analysis.bound.ranked() if bound != "unknown"
    ]
    return sorted([*parts, *kinds], key=lambda pair: -pair[1])


def _words(analysis: Analysis, bound: str, remarks: int) -> str:
    if bound == "transfer":
        times = analysis.timeline.device
        return "exposed communication" if times and times.communication_ns > times.copy_ns else "copying"
    if bound == "launch" and lacking(analysis):
        return "idle"
    if bound == "launch" and not analysis.idle_causes.empty and analysis.idle_causes["cause"].iloc[0] == "queued":
        return "idle with work queued"
    return _SAYING[bound] + (_remarked(analysis, remarks) if bound == "launch" else "")


def _remarked(analysis: Analysis, most: int) -> str:
    """Return, in parentheses, that most of the wait is not in the trace; or the cause of most of the idle time, and its
    share in the trace if that is estimated to be far less without the profiler; "" if there is nothing to say."""
    if most and analysis.missing_share >= _MOSTLY:
        return " (steps in the trace are shorter)"
    said = [each for each in (_cause(analysis), _traced(analysis))[:most] if each]
    return f" ({'; '.join(said)})" if said else ""


def _traced(analysis: Analysis) -> str:
    start = analysis.predicted_from
    if start is None or start.timed != "profiled" or start.profiled_idle_share < start.idle_share + _NAMED:
        return ""
    return f"{percent(start.profiled_idle_share)} in the trace"


def _cause(analysis: Analysis) -> str:
    """Return what the host does in most of the idle time; "" without a single cause."""
    causes = analysis.idle_causes
    if causes.empty or causes["share"].iloc[0] < _MOSTLY:
        return ""
    cause = str(causes["cause"].iloc[0])
    if cause in ("preprocessing", "python"):
        rows = analysis.host_causes[(analysis.host_causes["cause"] == cause).to_numpy()]
        names = rows.groupby("name")["idle_ns"].sum()
        return shortened(str(names.idxmax()), 40) if len(names) and names.idxmax() else ""
    return _CAUSES.get(cause, "")


def _by_kind(analysis: Analysis) -> list[tuple[str, float]]:
    """Return kinds of kernels, by their names, with their shares of the time in kernels whose bound is unknown."""
    kernels = analysis.kernels[~analysis.kernels["own_bound"].isin(["transfer", "latency"])]
    unknown = kernels[kernels["own_bound"] == ""] if (kernels["own_bound"] == "").any() else kernels
    unknown = unknown.assign(
        kind=[_kind(*map(str, named)) for named in zip(unknown["name"], unknown["op"], strict=True)]
    )
    whole = max(float(unknown["busy_ns"].sum()), 1.0)
    return [
        (_kind_or_name(str(kind), rows), float(rows["busy_ns"].sum() / whole) * analysis.bound.unknown)
        for kind, rows in unknown.groupby("kind")
    ]


def _kind(name: str, op: str) -> str:
    """Return the kind of a kernel: by its name, else its op."""
    kind = "GPU work that was not recorded" if name == UNRECORDED_WORK else named_kind(name)
    precision = named_precision(name) if kind in ("GEMMs", "convolutions", "attention") else ""
    return f"{precision} {kind or (f'in {shortened(op, 30)}' if op else _OTHER)}".strip()


def _kind_or_name(kind: str, rows: pd.DataFrame) -> str:
    """Return the kind, or the kernel's name if it is one kernel whose precision nothing tells."""
    largest = rows.iloc[int(rows["busy_ns"].to_numpy().argmax())]
    alone = largest["busy_ns"] >= _ALONE * rows["busy_ns"].sum() and largest["name"] != UNRECORDED_WORK
    return f"in {shortened(str(largest['name']), 30)}" if alone and kind in (_OTHER, "GEMMs") else kind
