"""Imports optional packages when they are used."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from tracekit.analyzers.core import InputError, MissingPackageError, TracekitError, installing

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


Say = Callable[[str], None]


def silent(_: str) -> None:
    """Discard progress messages; the default of the Python API."""


@contextmanager
def model_errors(name: str, run: str, *, bundled: bool) -> Iterator[None]:
    """Raise InputError for an exception from a model's code. An exception of a bundled model is raised unchanged."""
    fake = require("torch._subclasses.fake_tensor")
    try:
        yield
    except (TracekitError, MemoryError, require("torch").OutOfMemoryError):
        raise
    except (fake.DataDependentOutputException, fake.DynamicOutputShapeException) as error:
        raise InputError(
            f"{name} cannot be modelled.",
            "Its code reads values of tensors, and a modelled run computes none.",
            "Add --device cpu, or run it where there is a GPU.",
        ) from error
    except Exception as error:  # a wrong value can make the model's code raise any exception
        if bundled:
            raise
        raise InputError(
            f"{name} cannot run {run}.",
            first_line(error),
            "Check its config.json. If the model runs without tracekit, report what -v prints.",
        ) from error


def first_line(error: Exception) -> str:
    """Return the message of a library's exception in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    return " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
