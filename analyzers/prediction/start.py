"""From a trace to what predictions start from."""

from tracekit.analyzers.analysis import analyze
from tracekit.analyzers.hardware import GPU
from tracekit.analyzers.prediction.baseline import Baseline, baseline
from tracekit.analyzers.results import Analysis
from tracekit.analyzers.trace import Trace


def start(trace: Trace, gpu: GPU | None = None) -> tuple[Analysis, Baseline | None]:
    """The analysis of a trace, and its baseline; None without device work or without a known GPU.

    `gpu` is the GPU that ran it, used only where the trace does not say. Raises InputError for a trace without work.
    """
    analysis = analyze(trace, gpu)
    return analysis, baseline(trace, analysis)
