"""Profile PyTorch models, read GPU traces, and learn what to do next and how much it will give.

Names are imported when they are first used, so that `import tracekit` costs nothing and needs no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracekit import capture
    from tracekit.analyzers.comparison.comparison import Comparison
    from tracekit.analyzers.errors import TracekitError
    from tracekit.analyzers.hardware import all_gpus as gpus
    from tracekit.analyzers.interval import Interval
    from tracekit.analyzers.prediction.values import Recommendation
    from tracekit.analyzers.ranks.result import Job
    from tracekit.analyzers.readers import load
    from tracekit.analyzers.results import Analysis
    from tracekit.answers.full_analysis import analyze
    from tracekit.answers.job_of_ranks import ranks
    from tracekit.answers.scaling import scaling
    from tracekit.answers.two_runs import compare
    from tracekit.answers.what_if import predict
    from tracekit.capture.annotate import annotate
    from tracekit.jobs.holistic import hta
    from tracekit.quantization.quantize import quantize
    from tracekit.runs.outputs import write_report as report
    from tracekit.runs.profile_run import profile
    from tracekit.sweeps.run_sweep import sweep
    from tracekit.verification.verify_model import verify

__version__ = "0.1.0"

__all__ = [
    "Analysis",
    "Comparison",
    "Interval",
    "Job",
    "Recommendation",
    "TracekitError",
    "analyze",
    "annotate",
    "capture",
    "compare",
    "gpus",
    "hta",
    "load",
    "predict",
    "profile",
    "quantize",
    "ranks",
    "report",
    "scaling",
    "sweep",
    "verify",
]

_HOMES = {
    "Analysis": "tracekit.analyzers.results:Analysis",
    "Comparison": "tracekit.analyzers.comparison.comparison:Comparison",
    "Interval": "tracekit.analyzers.interval:Interval",
    "Job": "tracekit.analyzers.ranks.result:Job",
    "Recommendation": "tracekit.analyzers.prediction.values:Recommendation",
    "TracekitError": "tracekit.analyzers.errors:TracekitError",
    "analyze": "tracekit.answers.full_analysis:analyze",
    "annotate": "tracekit.capture.annotate:annotate",
    "capture": "tracekit.capture:",
    "compare": "tracekit.answers.two_runs:compare",
    "load_ipython_extension": "tracekit.viewing.magics:load_ipython_extension",
    "gpus": "tracekit.analyzers.hardware:all_gpus",
    "hta": "tracekit.jobs.holistic:hta",
    "load": "tracekit.analyzers.readers:load",
    "predict": "tracekit.answers.what_if:predict",
    "profile": "tracekit.runs.profile_run:profile",
    "quantize": "tracekit.quantization.quantize:quantize",
    "ranks": "tracekit.answers.job_of_ranks:ranks",
    "report": "tracekit.runs.outputs:write_report",
    "scaling": "tracekit.answers.scaling:scaling",
    "sweep": "tracekit.sweeps.run_sweep:sweep",
    "verify": "tracekit.verification.verify_model:verify",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    return getattr(import_module(module), attribute) if attribute else import_module(module)


def __dir__() -> list[str]:
    return __all__
