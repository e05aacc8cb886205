"""torch and transformers, imported when they are needed."""

from importlib import import_module
from typing import Any

from tracekit.analyzers.errors import MissingPackageError


def require(package: str) -> Any:
    """The package. Raises MissingPackageError, with what to install, when it is absent."""
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise MissingPackageError(
            f"{package} is not installed.",
            "Running a model needs it.",
            "Install it with: pip install 'tracekit[capture]'",
        ) from error
