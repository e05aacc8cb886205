"""Imports optional packages when they are used."""

from importlib import import_module
from typing import Any

from tracekit.analyzers.errors import MissingPackageError

EXTRAS = {
    "torch": "capture",
    "transformers": "capture",
    "huggingface_hub": "capture",
    "safetensors": "capture",
    "nvtx": "capture",
    "torchao": "quantize",
    "bitsandbytes": "bitsandbytes",
    "diffusers": "diffusion",
    "liger_kernel": "fused",
    "triton": "fuse",
    "peft": "adapters",
    "pynvml": "measure",
    "pyarrow": "measure",
    "IPython": "notebook",
    "mcp": "mcp",
    "mcp_types": "mcp",
}
"""The extra of tracekit that installs a package, by import name."""

_NEEDED_FOR = {
    "capture": "Running a model needs it.",
    "diffusion": "Diffusion models are built with it.",
    "measure": "Readings of the GPU and Parquet files need it.",
    "notebook": "The notebook magics need it.",
    "mcp": "The server for programs needs it.",
    "fuse": "Kernels are written in Triton, and proved by its interpreter if there is no GPU.",
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
    why = _NEEDED_FOR.get(EXTRAS[package], _OPTIMIZATION)
    return MissingPackageError(f"{package} is not installed.", why, _install(package))


def _without_module(package: str, module: str) -> MissingPackageError:
    return MissingPackageError(
        f"{package} {_version(package)} has no module {module}.", "tracekit needs another version.", _install(package)
    )


def _broken(package: str, error: Exception) -> MissingPackageError:
    lines = str(error).strip().splitlines()
    why = lines[0] if lines else type(error).__name__
    return MissingPackageError(f"{package} cannot be imported.", why, _install(package, again=True))


def _install(package: str, *, again: bool = False) -> str:
    verb = "Install it again" if again else "Install it"
    return f"{verb} with: pip install 'tracekit[{EXTRAS[package]}]'"


def _version(package: str) -> str:
    from importlib.metadata import PackageNotFoundError, version  # 7 ms, only for this message

    try:
        return version(package)
    except PackageNotFoundError:
        return "(of an unknown version)"
