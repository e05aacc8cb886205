"""Parses the Python frames that a profiler records, such as "scipy/ndimage/_interpolation.py(739): zoom"."""

import re
from functools import lru_cache

import msgspec

_FRAME = re.compile(r"(?P<path>.*)\((?P<line>\d+)\): (?P<function>.+)", re.DOTALL)
_INSTALLED = ("site-packages/", "dist-packages/")
_BUILTIN = re.compile(r"<built-in (?:function|method) (?P<function>\S+?)(?: of (?P<owner>.+?)(?: object)?)?>")
_FRAMEWORK = re.compile(
    r"(?:.*/)?torchinductor_|torch(?:/|$)|torch\.py|functorch/|triton/|accelerate/|lightning|pytorch_lightning/|deepspeed/|apex/"
    r"|transformers/trainer|threading\.py|multiprocessing/|queue\.py|selectors\.py|runpy\.py|contextlib\.py|<frozen|<string>"
)
_FRAMEWORK_BUILTIN = re.compile(r"torch|Tensor|Parameter|_thread|_engine|_cuda|_C\b|lock")


class Function(msgspec.Struct, frozen=True):
    """A function, with the name that users know it by, and its location."""

    name: str
    location: str
    """File and line, such as "scipy/ndimage/_interpolation.py:739"; "" for a function that is not written in Python."""
    package: str
    """The outermost package; "" for a function that is not written in Python."""
    framework: bool
    """Whether it belongs to torch, a training framework, or the standard library's threading and process machinery."""


@lru_cache(maxsize=4096)
def function_of(frame: str) -> Function:
    written = _FRAME.fullmatch(frame)
    if written is None:
        builtin = _BUILTIN.fullmatch(frame)
        name = builtin["function"] if builtin else frame
        return Function(name, "", "", bool(_FRAMEWORK_BUILTIN.search(frame)))
    path, function = _installed(written["path"].replace("\\", "/")), written["function"]
    parts = path.removesuffix(".py").split("/")
    public = [part for part in (parts[-1:] if path.startswith("/") else parts) if part and not part.startswith("_")]
    name = ".".join([*public, function])
    return Function(name, f"{path}:{written['line']}", parts[0], bool(_FRAMEWORK.match(path)))


def _installed(path: str) -> str:
    """Return the path relative to the folder of installed packages."""
    for folder in _INSTALLED:
        path = path.rpartition(folder)[2]
    return path
