"""What bounds the run and what to do next, in one sentence."""

from analyzers.results import BOUNDS, Analysis, Bound
from reports.names import device, model, with_article
from reports.numbers import percent, speedup

_SAYING: dict[Bound, str] = {
    "compute": "is bound by arithmetic {share} of the time",
    "memory": "is bound by memory bandwidth {share} of the time",
    "launch": "waits for the host {share} of the time",
    "latency": "spends {share} of the time in kernels too small to fill the GPU",
    "transfer": "spends {share} of the time moving data",
}
_DOMINANT = 0.4


def headline(analysis: Analysis) -> str:
    """Such as "GPT-2 decode on an H200 waits for the host 87 % of the time: try CUDA graphs, predicted 6.8–8.1×."."""
    return f"{_subject(analysis)} {_state(analysis)}{_next_step(analysis)}."


def _subject(analysis: Analysis) -> str:
    source = analysis.source
    capture = source.capture
    what = " ".join(part for part in (model(capture.model), capture.workload) if part) if capture else ""
    where = device(source)
    if source.kind == "modelled":
        return f"{what or 'This run'}, modelled for {with_article(where)},"
    return (what or "This run") + (f" on {with_article(where)}" if where else "")


def _state(analysis: Analysis) -> str:
    if analysis.source.device == "cpu":
        return _largest_op(analysis)
    main = analysis.bound.main
    share = getattr(analysis.bound, main)
    if share >= _DOMINANT:
        return _SAYING[main].format(share=percent(share))
    ranked = sorted(BOUNDS, key=lambda name: -getattr(analysis.bound, name))[:3]
    return "has no single bound: " + ", ".join(f"{name} {percent(getattr(analysis.bound, name))}" for name in ranked)


def _largest_op(analysis: Analysis) -> str:
    if analysis.ops.empty:
        return "holds no op"
    top = analysis.ops.nlargest(1, "share").iloc[0]
    return f"spends {percent(top['share'])} of the time in {top['name']}"


def _next_step(analysis: Analysis) -> str:
    if analysis.recommendations:
        first = analysis.recommendations[0]
        return f": try {lower_first(first.title)}, predicted {speedup(first.speedup)}"
    if analysis.considered:
        return ", and none of the optimizations considered would help"
    return ""


def lower_first(title: str) -> str:
    """Lower the first letter, but of no acronym or name such as "CUDA" or "PyTorch"."""
    word = title.split(" ", 1)[0]
    return title[:1].lower() + title[1:] if word[1:].islower() or len(word) == 1 else title
