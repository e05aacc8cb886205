"""Profile PyTorch models, read GPU traces, and learn what to do next and how much it will give.

Names are imported when they are first used, so that `import tracekit` costs nothing and needs no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracekit import capture
    from tracekit.analysis import analyze
    from tracekit.analyzers.hardware import all_gpus as gpus
    from tracekit.analyzers.readers import load
    from tracekit.capture.annotate import annotate
    from tracekit.comparing import compare
    from tracekit.outputs import write_report as report
    from tracekit.prediction import predict
    from tracekit.profiling import profile
    from tracekit.verifying_own import verify

__version__ = "0.1.0"

__all__ = ["analyze", "annotate", "capture", "compare", "gpus", "load", "predict", "profile", "report", "verify"]

_HOMES = {
    "analyze": "tracekit.analysis:analyze",
    "annotate": "tracekit.capture.annotate:annotate",
    "capture": "tracekit.capture:",
    "compare": "tracekit.comparing:compare",
    "load_ipython_extension": "tracekit.notebook:load_ipython_extension",
    "gpus": "tracekit.analyzers.hardware:all_gpus",
    "load": "tracekit.analyzers.readers:load",
    "predict": "tracekit.prediction:predict",
    "profile": "tracekit.profiling:profile",
    "report": "tracekit.outputs:write_report",
    "verify": "tracekit.verifying_own:verify",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    return getattr(import_module(module), attribute) if attribute else import_module(module)


def __dir__() -> list[str]:
    return __all__
