"""Errors that are shown to users: what happened, why, and what to try, such as what to install."""

from collections.abc import Iterator
from contextlib import contextmanager


class TracekitError(Exception):
    """An expected failure. The command line prints it in three short sentences, and exits with its status, or else with
    that of the command's errors."""

    status: int | None = None

    def __init__(self, what: str, why: str = "", hint: str = "") -> None:
        super().__init__(" ".join(part for part in (what, why, hint) if part))
        self.what, self.why, self.hint = what, why, hint


class InputError(TracekitError):
    """The input cannot be used: it is missing, empty, of an unknown format, or without usable events."""


class UnknownNameError(TracekitError):
    """The name of a GPU, a model or an optimization is unknown; the hint gives the most similar names."""


class MissingPackageError(TracekitError):
    """A required optional package is not installed."""


@contextmanager
def reading(what: str, hint: str) -> Iterator[None]:
    """Convert an OSError in the block to InputError: a missing file, a folder, no permission."""
    try:
        yield
    except OSError as error:
        raise InputError(what, f"{error.strerror}.", hint) from error


_RUNNING = ("torch>=2.4", "transformers>=4.56", "nvtx>=0.2.10")

REQUIREMENTS = {
    "torch": _RUNNING,
    "transformers": _RUNNING[1:2],
    "huggingface_hub": _RUNNING[1:2],
    "safetensors": _RUNNING[1:2],
    "nvtx": _RUNNING[2:],
    "torchao": ("torchao>=0.15",),
    "bitsandbytes": ("bitsandbytes>=0.45", "accelerate>=1.0"),
    "diffusers": ("diffusers>=0.30", "pillow>=10", "requests>=2.31"),
    "liger_kernel": ("liger-kernel>=0.6",),
    "triton": ("triton>=3.6",),
    "pynvml": ("nvidia-ml-py>=12.535",),
    "pyarrow": ("pyarrow>=15",),
    "IPython": ("ipython>=8.12",),
    "mcp": ("mcp>=2.0",),
    "mcp_types": ("mcp>=2.0",),
    "fsspec": ("fsspec[http,s3]>=2024.2",),
    "ncu_report": ("ncu-report>=2025.3",),
    "perfetto": ("perfetto>=0.59",),
    "distributed": ("distributed>=2024.8",),
    "hta": ("traceinsight>=0.6",),
}
"""The packages that are needed where this one is, with their versions. A test compares them with pyproject.toml."""


def installing(package: str, *, again: bool = False) -> str:
    """Return the hint with the command that installs a package. It names the packages themselves: the name `tracekit`
    on PyPI is another project's."""
    quoted = " ".join(f"'{each}'" for each in REQUIREMENTS[package])
    return f"Install it {'again ' if again else ''}with: pip install {quoted}"
