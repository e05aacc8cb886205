"""Imports optional packages when they are used."""

from importlib import import_module
from typing import Any

from tracekit.analyzers.errors import MissingPackageError
from tracekit.analyzers.packages import installing

_NEEDED_FOR = {
    "Running a model needs it.": ("torch", "transformers", "huggingface_hub", "safetensors", "nvtx"),
    "Diffusion models are built with it.": ("diffusers",),
    "Readings of the GPU need it.": ("pynvml",),
    "Parquet files need it.": ("pyarrow",),
    "The notebook magics need it.": ("IPython",),
    "The server for programs needs it.": ("mcp", "mcp_types"),
    "Kernels are written in Triton, and proved by its interpreter if there is no GPU.": ("triton",),
}
_OPTIMIZATION = "This optimization is applied with it."


def require(module: str) -> Any:
    """Import a module of an optional package.

    Raises MissingPackageError, with the command that installs it, if the package is absent, lacks the module in this
    version, or cannot be loaded.
    """
    package = module.partition(".")[0]
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name == package:
            raise _missing(package) from error
        if error.name == module:
            raise _without_module(package, module) from error
        raise _broken(package, error) from error
    except (ImportError, OSError) as error:
        raise _broken(package, error) from error


def _missing(package: str) -> MissingPackageError:
    why = next((why for why, packages in _NEEDED_FOR.items() if package in packages), _OPTIMIZATION)
    return MissingPackageError(f"{package} is not installed.", why, installing(package))


def _without_module(package: str, module: str) -> MissingPackageError:
    return MissingPackageError(
        f"{package} {_version(package)} has no module {module}.", "tracekit needs another version.", installing(package)
    )


def _broken(package: str, error: Exception) -> MissingPackageError:
    lines = str(error).strip().splitlines()
    why = lines[0] if lines else type(error).__name__
    return MissingPackageError(f"{package} cannot be imported.", why, installing(package, again=True))


def _version(package: str) -> str:
    from importlib.metadata import PackageNotFoundError, version  # 7 ms, only for this message

    try:
        return version(package)
    except PackageNotFoundError:
        return "(of an unknown version)"
