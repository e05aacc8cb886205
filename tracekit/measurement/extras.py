"""Packages that some optimizations are applied with."""

from importlib import import_module
from typing import Any

from tracekit.analyzers.errors import MissingPackageError

EXTRAS = {
    "torchao": "quantize",
    "bitsandbytes": "bitsandbytes",
    "liger_kernel": "fused",
    "peft": "adapters",
    "pynvml": "measure",
}
"""The extra of tracekit that installs a package."""


def extra(package: str) -> Any:
    """The package, or a module of it. Raises MissingPackageError, with what to install, when it is absent."""
    root = package.partition(".")[0]
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != root:
            raise
        raise MissingPackageError(
            f"{root} is not installed.",
            "This optimization is applied with it.",
            f"Install it with: pip install 'tracekit[{EXTRAS[root]}]'",
        ) from error
