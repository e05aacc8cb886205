"""The analysis and the baseline of a trace, from which predictions start."""

from tracekit.analyzers.attribute import analyze
from tracekit.analyzers.cost import GPU
from tracekit.analyzers.predict.step_baseline import Baseline, baseline
from tracekit.analyzers.results import Analysis
from tracekit.analyzers.trace import Trace


def start(trace: Trace, gpu: GPU | None = None) -> tuple[Analysis, Baseline | None]:
    """Return the analysis of a trace, and its baseline; None without device work or with an unknown GPU.

    `gpu` is the GPU of the run, used only if the trace does not name it. Raises InputError for a trace without work.
    """
    analysis = analyze(trace, gpu)
    return analysis, baseline(trace, analysis)
