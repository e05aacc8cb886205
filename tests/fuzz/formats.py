"""The formats that are mutated: how a sound input is made, where it lies, which commands read it, how it is counted."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import bases, counters, mutators
from .counters import Count

Tree = Any
INPUT = "input"
_ANALYZE = ("analyze", f"{{}}/{INPUT}", "--format", "json", "--no-cache")
_IN_RUN = ("analyze", "{}", "--format", "json", "--no-cache")
_PREDICT = ("predict", "{}", "--apply", "compile")
_CHECK = (
    "check",
    "{}/trace.json",
    "--against",
    "base",
    "--baselines",
    "{}/baselines",
    "--format",
    "json",
    "--no-cache",
)


@dataclass(frozen=True)
class Format:
    """An input of tracekit. In its commands, {} is the folder with its files."""

    tree: Callable[[], Tree]
    encode: Callable[[Tree], bytes]
    """May raise an exception for a tree that the format cannot express: another one is drawn."""
    commands: tuple[tuple[str, ...], ...] = (_ANALYZE,)
    trees: tuple[mutators.TreeMutator, ...] = mutators.TREES
    bytes: tuple[mutators.ByteMutator, ...] = mutators.TEXT
    name: str = INPUT
    """Path of the input in the folder; "": the tree maps names of files to their contents."""
    around: Callable[[], dict[str, bytes]] = dict
    """Sound files beside the input."""
    count: Callable[[bytes, bytes], Count] | None = None


def _trace() -> dict[str, bytes]:
    return {"trace.json": bases.json_bytes(bases.kineto())}


def _replays() -> dict[str, bytes]:
    return {"trace.json": bases.json_bytes(bases.replays())}


def _run() -> dict[str, bytes]:
    graph, settings = bases.gzip_bytes(bases.graph()), bases.json_bytes(bases.run_folder()["run.json"])
    return {"trace.json.gz": bases.gzip_bytes(bases.kineto()), "graph.json.gz": graph, "run.json": settings}


_EVENTS = (*mutators.TREES, *mutators.EVENTS, *mutators.EVENTS)
FORMATS: dict[str, Format] = {
    "kineto": Format(
        bases.kineto,
        bases.json_bytes,
        trees=_EVENTS,
        bytes=(*mutators.TEXT, mutators.second_list),
        count=counters.kineto,
    ),
    "kineto-gzip": Format(
        bases.kineto,
        bases.gzip_bytes,
        trees=_EVENTS,
        bytes=(*mutators.BYTES, mutators.recompressed),
        count=counters.kineto_gzip,
    ),
    "perfetto": Format(
        bases.kineto,
        bases.perfetto_bytes,
        trees=(*mutators.EVENTS, mutators.swap, mutators.duplicate, mutators.shuffle),
        bytes=(*mutators.BYTES, *[mutators.packets] * 5, mutators.packed),
        count=counters.perfetto,
    ),
    "proton": Format(bases.proton, bases.proton_bytes, trees=_EVENTS, count=counters.proton),
    "hatchet": Format(bases.hatchet, bases.json_bytes, count=counters.hatchet),
    "nsys": Format(bases.nsys, bases.nsys_bytes, bytes=(*mutators.BYTES, *[mutators.sql] * 5), count=counters.nsys),
    "ncu": Format(bases.ncu, bases.ncu_bytes, bytes=mutators.TEXT, count=counters.ncu),
    "pickle": Format(
        bases.snapshot,
        bases.pickle_bytes,
        (("memory", "{}/input.pickle", "--format", "json"),),
        bytes=(*mutators.BYTES, *[mutators.opcodes] * 5),
        name="input.pickle",
    ),
    "execution-trace": Format(
        bases.execution_trace,
        bases.json_bytes,
        (("fuse", "{}/trace.json", "--execution-trace", f"{{}}/{INPUT}", "--gpu", "h200"),),
        bytes=(*mutators.TEXT, mutators.grown),
        around=lambda: {"trace.json": bases.json_bytes(bases.executed())},
    ),
    "graph": Format(
        bases.graph,
        bases.gzip_bytes,
        (("fuse", "{}", "--gpu", "h200"), ("fuse", "{}"), _IN_RUN, _PREDICT),
        bytes=(*mutators.BYTES, *[mutators.recompressed] * 3),
        name="graph.json.gz",
        around=_run,
    ),
    "captures": Format(
        bases.captures,
        bases.json_bytes,
        (("analyze", "{}/trace.json", "--captures", f"{{}}/{INPUT}", "--format", "json", "--no-cache"),),
        trees=_EVENTS,
        around=_replays,
    ),
    "baseline": Format(
        bases.baseline,
        bases.json_bytes,
        (_CHECK, (*_CHECK, "--only", "counters")),
        bytes=(*mutators.TEXT, mutators.grown),
        name="baselines/base.json",
        around=_trace,
    ),
    "run": Format(
        bases.run_folder,
        bases.json_bytes,
        (_IN_RUN, _PREDICT, ("fuse", "{}"), ("fuse", "{}", "--gpu", "h200")),
        bytes=(*mutators.TEXT, mutators.grown),
        name="",
        around=_run,
    ),
    "gpu": Format(
        bases.gpu,
        bases.toml_bytes,
        (
            ("analyze", "{}/trace.json", "--gpu-file", "{}/gpu.toml", "--format", "json", "--no-cache"),
            ("predict", "{}/trace.json", "--gpu-file", "{}/gpu.toml", "--gpu", "mine"),
        ),
        name="gpu.toml",
        around=_trace,
    ),
    "ranks": Format(
        bases.job, bases.json_bytes, (("ranks", "{}", "--format", "json", "--no-cache"),), _EVENTS, name=""
    ),
}


def files_of(chosen: Format, tree: Tree) -> dict[str, bytes]:
    """Return the bytes of the mutated files by their names in the folder."""
    if chosen.name:
        return {chosen.name: chosen.encode(tree)}
    return {str(name): chosen.encode(value) for name, value in tree.items()}


def arguments(command: tuple[str, ...], folder: Path) -> list[str]:
    return [part.replace("{}", str(folder)) for part in command]
