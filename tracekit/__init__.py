"""Profile PyTorch models, read GPU traces, and learn what to do next and how much it will give.

Names are imported when they are first used, so that `import tracekit` costs nothing and needs no torch.
"""

from typing import TYPE_CHECKING

from tracekit.analyzers.core import lazily
from tracekit.version import __version__

if TYPE_CHECKING:
    from tracekit import capture
    from tracekit.analyzers.compare import Comparison
    from tracekit.analyzers.core import Interval, TracekitError
    from tracekit.analyzers.cost import all_gpus as gpus
    from tracekit.analyzers.ranks import Job
    from tracekit.analyzers.results import Analysis, Recommendation
    from tracekit.analyzers.trace import load
    from tracekit.answer import analyze, compare, predict, scaling
    from tracekit.capture import annotate
    from tracekit.cli._magics import load_ipython_extension
    from tracekit.jobs import hta, ranks
    from tracekit.measure import sweep, verify
    from tracekit.profiling import profile
    from tracekit.profiling import write_report as report
    from tracekit.quantization import quantize
else:
    __getattr__ = lazily(__name__, __file__)


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


def __dir__() -> list[str]:
    return __all__
