"""Classifies host rows by their names, and by the rows around and inside them. Causes are stored as small integers."""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.attribute.kernel_names import is_launch, matching, one_of
from tracekit.analyzers.attribute.nesting import Nest, any_above
from tracekit.analyzers.attribute.recorded_ranges import UserRanges, is_mark
from tracekit.analyzers.core import Bools, Floats, Ints
from tracekit.analyzers.results import CAUSES

Codes = npt.NDArray[np.int8]

UNKNOWN = ""
"""The launch of the work is not recorded."""
COMPUTING = "computing"
"""Kind of an op outside the model that launches nothing; it is preprocessing if it takes long enough. It is not the
cause of a gap."""
WORDS = (*CAUSES, UNKNOWN, COMPUTING)
CODE = {word: np.int8(code) for code, word in enumerate(WORDS)}


def first_true(tests: Mapping[str, Bools], default: str | Codes) -> Codes:
    """Return the code of the first test that is true, else the default."""
    otherwise = CODE[default] if isinstance(default, str) else default
    return np.select(list(tests.values()), [CODE[cause] for cause in tests], otherwise)


def is_any(codes: Codes, causes: Iterable[str]) -> Bools:
    """Return which codes are one of these causes."""
    chosen = np.zeros(len(WORDS), dtype=bool)
    chosen[[CODE[cause] for cause in causes]] = True
    return chosen[codes]


def categorical(codes: Codes) -> "pd.Categorical[str]":
    """Return the causes as a categorical column."""
    return pd.Categorical.from_codes(codes, categories=pd.Index(WORDS[:-1]))


def codes_of(causes: pd.Series) -> Codes:
    """Return the codes of a column that `categorical` made."""
    return np.asarray(causes.cat.codes, dtype=np.int8)


def sums_by(ns: npt.NDArray, *keys: npt.NDArray) -> tuple[Floats, tuple[npt.NDArray[np.intp], ...], Ints]:
    """Return the sums of times with equal keys, these keys in order, and the number of times with each. Keys are
    integers from 0."""
    if not len(ns):
        return np.zeros(0), tuple(np.zeros(0, dtype=np.intp) for _ in keys), np.zeros(0, dtype=np.int64)
    sizes = [int(key.max()) + 1 for key in keys]
    packed = np.ravel_multi_index([key.astype(np.intp) for key in keys], sizes)
    order = np.argsort(packed, kind="stable")  # Stable sort is fast on almost ordered data.
    packed = packed[order]
    first = np.flatnonzero(np.diff(packed, prepend=-1))
    sums, counts = np.add.reduceat(ns[order].astype(np.float64), first), np.diff(first, append=len(ns))
    return sums, np.unravel_index(packed[first], sizes), counts


LONG_CALL_NS = 100_000
"""Shortest duration in ns with which a driver call that neither launches nor waits has a separate cause."""
LONG_LAUNCH_NS = 500_000
"""A launch of a kernel that takes at least this long on an idle device, in ns, loads its kernel first. The launch of a
graph takes time for each of its nodes."""

LOADING = re.compile(
    r"^enumerate\((?:DataLoader|DataPipe)\)#|^torch/utils/data/dataloader\.py\(\d+\): (?:__next__|__iter__)"
    r"|(?<![a-z])data[ _-]?load(?:ing|er)?\b(?!\.py)|\bdataloader_(?:iter_)?next\b",
    re.IGNORECASE,
)
_PROCESSOR = re.compile(r"pre_?process|image_processing|processing_\w+\.py|feature_extract|tokeniz", re.IGNORECASE)
_COMPILING = re.compile(
    r"^(?!cudagraph|CUDAGraph).*\(dynamo_timed\)$"
    r"|^(?:entire_frame_compile|backend_compile|inductor_compile|compile_fx_inner)$|torch/_dynamo/convert_frame\.py|triton/compiler/compiler\.py"
    r"|triton_heuristics\.py\(\d+\): (?:autotune|bench|precomp)"
)
_RECORDS_GRAPHS = re.compile(r"^cudagraphify|^CUDAGraphNode\.record|torch/_dynamo/metrics_context\.py")
"""Recording of a CUDA graph by torch.compile, which then also logs the metrics of each graph, for milliseconds."""
_COLLECTING = re.compile(r"^Python GC$|^<built-in function collect>$|^gc\.collect$")
_ALLOCATES = re.compile(
    r"^(?:cuda|hip)(?:Malloc|Free|HostAlloc|HostFree|FreeHost|HostRegister|HostUnregister)"
    r"|^(?:cu|hip)Mem(?:Alloc|Free|Create|Release|Map|Unmap|Address|SetAccess|Host)|^(?:cudaMemPool|cuMemPool)"
)
_SYNCHRONISES = re.compile(r"synchroni[sz]e|^(?:cuda|hip)Memcpy(?:WithStream)?$", re.IGNORECASE)
_COPIES = re.compile(r"memcpy", re.IGNORECASE)
COMMUNICATING = "nccl|rccl|gloo|mpi|ucc|xccl|c10d"
"""Libraries of collectives, and torch's interface to them: the prefixes of their ranges and ops."""
_COLLECTIVE = re.compile(rf"^(?:{COMMUNICATING})[:_]|record_param_comms|_c10d_functional", re.IGNORECASE)
_GRAPH_LAUNCH = re.compile(r"GraphLaunch", re.IGNORECASE)
_LOADS_KERNELS = re.compile(r"Lazy Function Loading|Module Loading", re.IGNORECASE)
_MODULE_RANGE = re.compile(r"^module: ")
_FRAMEWORK_RANGE = re.compile(
    r"^(?:Optimizer\.|module: |## Call|Torch-Compiled|TorchDynamo|Pregraph|AOTDispatcher"
    rf"|DistributedDataParallel|FullySharded|FSDP|(?:{COMMUNICATING}|cublas|cudnn):)|compile_id="
)
_COMPUTES = re.compile(
    r"^(?!autograd|c10d|profiler|torch::autograd)\w+::(?!t$|item$|_local_scalar|to$|empty|view|as_strided|detach|reshape"
    r"|expand|permute|transpose|slice|select|unsqueeze|squeeze|resize_$)\w+"
)
_LIBRARY_OP = re.compile(r"^(?!autograd|torch::autograd|c10d|profiler)\w+::\w+")
_BACKWARD = re.compile(r"^autograd::engine")


def synchronises(host: pd.DataFrame) -> Bools:
    """Return which rows are calls in which the host waits for a device."""
    return (host["category"] == "runtime").to_numpy() & matching(host["name"], _SYNCHRONISES)


def is_collective(host: pd.DataFrame) -> Bools:
    return one_of(host["category"], ("op", "range")) & matching(host["name"], _COLLECTIVE)


def is_module(host: pd.DataFrame) -> Bools:
    """Return which rows are calls of modules, recorded by a profiler or marked by tracekit's capture."""
    category = host["category"]
    marked = (category == "range").to_numpy() & matching(host["name"], _MODULE_RANGE)
    return (category == "module").to_numpy() | marked


def is_library_op(host: pd.DataFrame) -> Bools:
    """Return which rows are ops of a library (namespace::name), except those of autograd, c10d and the profiler."""
    return (host["category"] == "op").to_numpy() & matching(host["name"], _LIBRARY_OP)


def is_in_model(host: pd.DataFrame) -> Bools:
    """Return which rows are calls of modules, or ranges of optimizers, compiled code or distributed training."""
    ranges = (host["category"] == "range").to_numpy()
    return is_module(host) | (ranges & matching(host["name"], _FRAMEWORK_RANGE))


def is_own_range(host: pd.DataFrame) -> Bools:
    """Return which rows are ranges of the program itself, except those that mark steps and phases."""
    return UserRanges(host).are(lambda name: not (_FRAMEWORK_RANGE.search(name) or is_mark(name)))


def is_compiling(host: pd.DataFrame) -> Bools:
    """Return which rows are ranges, frames or ops of compilers. Everything inside them counts as compiling."""
    return one_of(host["category"], ("range", "python", "op")) & matching(host["name"], _COMPILING)


def is_framework(host: pd.DataFrame) -> Bools:
    """Return which rows are Python frames of torch and training frameworks, or their ranges, except modules."""
    ranges = is_in_model(host) & (host["category"] == "range").to_numpy() & ~is_module(host)
    return ranges | ((host["category"] == "python").to_numpy() & _framework(host["name"]))


def kinds(host: pd.DataFrame, nest: Nest, to_host: Bools, launches: Ints, modules: Ints) -> Codes:
    """Return the kind of each host row, all of which are in the nest: the code of one of CAUSES, or of COMPUTING.

    `to_host` marks rows that wait for the device, such as launches of copies to the host. `launches` and `modules` are
    the ascending times of launches and module calls on the launching threads.
    """
    category, names = host["category"], host["name"]
    frame, is_range, op = ((category == each).to_numpy() for each in ("python", "range", "op"))
    own = _own_kinds(host, to_host)
    bare = ~_contains(host, launches) & ~_contains(host, modules)
    parents, named = nest.parents, is_range | frame | op
    in_model, loading, compiling, recording, processing = any_above(
        parents,
        is_in_model(host) | (op & matching(names, _BACKWARD)),
        named & matching(names, LOADING),
        is_compiling(host),
        named & matching(names, _RECORDS_GRAPHS),
        named & matching(names, _PROCESSOR) & bare,
    )
    written = (is_own_range(host) & ~is_collective(host)) | (frame & ~_framework(names))
    (preparing,) = any_above(parents, written & bare & ~in_model)
    tests = {
        "compilation": compiling,
        "recording": recording,
        UNKNOWN: own != CODE[UNKNOWN],
        "preprocessing": processing | (preparing & ~loading),
        "data-loading": loading,
        COMPUTING: op & bare & ~in_model & matching(names, _COMPUTES),
    }
    chosen = first_true(tests, "dispatch")
    return np.where(chosen == CODE[UNKNOWN], own, chosen)


def _own_kinds(host: pd.DataFrame, to_host: Bools) -> Codes:
    """Return the kinds that follow from a row alone, not from its parents; the code of UNKNOWN where there is none."""
    category, names = host["category"], host["name"]
    runtime, overhead = (category == "runtime").to_numpy(), (category == "overhead").to_numpy()
    own = np.where(runtime, _calls(names, host["duration_ns"].to_numpy(), to_host), CODE[UNKNOWN])
    tests = {
        "garbage-collection": matching(names, _COLLECTING),
        "communication": is_collective(host),
        "setup": overhead & matching(names, _LOADS_KERNELS),
        "profiling": overhead,
    }
    return first_true(tests, own)


def _calls(names: pd.Series, length: Ints, to_host: Bools) -> Codes:
    """Return the kinds of driver calls; the code of UNKNOWN if the kind depends on the rows around the call."""
    launch = is_launch(names)
    tests = {
        "sync": matching(names, _SYNCHRONISES) | to_host,
        "allocation": matching(names, _ALLOCATES),
        "transfer": matching(names, _COPIES),
        "setup": ~matching(names, _GRAPH_LAUNCH) & (length >= np.where(launch, LONG_LAUNCH_NS, LONG_CALL_NS)),
        "dispatch": launch,
    }
    return first_true(tests, UNKNOWN)


def _framework(names: pd.Series) -> Bools:
    codes, distinct = names.cat.codes.to_numpy(), names.cat.categories
    used = np.unique(codes[codes >= 0])
    known = np.zeros(len(distinct) + 1, dtype=bool)
    known[used] = [function_of(str(distinct[code])).framework for code in used]
    return known[codes]


def _contains(host: pd.DataFrame, times: Ints) -> Bools:
    """Return whether any of the ascending times lies inside each row."""
    start = host["start_ns"].to_numpy()
    end = start + host["duration_ns"].to_numpy()
    return np.searchsorted(times, end, "right") > np.searchsorted(times, start, "left")


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
