"""Says what a trace is of: the model and its workload, or else the script, the binary, the engine or the file."""

import re
from collections.abc import Iterator

from tracekit.analyzers.results import Analysis, Source
from tracekit.reports.words import device, model, shortened, with_article

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
    source, what = analysis.source, named(analysis)
    settings = [_batch(source), _length(source), source.precision]
    for kept in (settings, settings[:2], settings[:1]):
        yield ", ".join(part for part in (what, *kept, _where(analysis)) if part)
    for shorter in (what, what.partition(" (")[0]):
        yield " ".join(part for part in (shorter, _where(analysis)) if part)


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


def unrecorded_gpu(analysis: Analysis) -> int:
    """Return the number of calls that put work on a GPU of which the trace contains none."""
    told = (analysis.problems["code"] == "gpu-not-recorded").to_numpy()
    return int(analysis.problems["count"].to_numpy()[told].sum())
