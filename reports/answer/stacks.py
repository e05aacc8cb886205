"""Stacks of layers, op and kernel weighted by device time: for speedscope, and as collapsed stacks for flame graphs."""

from tracekit.analyzers.results import Analysis
from tracekit.reports.figures import leaves_of
from tracekit.reports.words import inside, json_text, printable

SCHEMA = "https://www.speedscope.app/file-format-schema.json"
Stack = tuple[str, ...]


def to_speedscope(analysis: Analysis) -> str:
    """Return the busy time in steps as one sampled profile of speedscope, in ns; a sample is a stack, in order of its
    first work."""
    stacks = times_of_stacks(analysis)
    frames = {name: index for index, name in enumerate(dict.fromkeys(name for stack in stacks for name in stack))}
    profile = {
        "type": "sampled",
        "name": "busy time by layer, op and kernel",
        "unit": "nanoseconds",
        "startValue": 0,
        "endValue": sum(stacks.values()),
        "samples": [[frames[name] for name in stack] for stack in stacks],
        "weights": list(stacks.values()),
    }
    shared = {"frames": [{"name": name} for name in frames]}
    return json_text({"$schema": SCHEMA, "exporter": "tracekit", "shared": shared, "profiles": [profile]})


def to_collapsed(analysis: Analysis) -> str:
    """Return the busy time in steps as collapsed stacks: in a line the frames of a stack, then its ns."""
    stacks = times_of_stacks(analysis)
    lines = [f"{';'.join(name.replace(';', ':') for name in stack)} {ns}\n" for stack, ns in stacks.items()]
    return "".join(lines)


def times_of_stacks(analysis: Analysis) -> dict[Stack, int]:
    """Return the busy time in ns of each stack, from the outermost layer to the kernel."""
    layers = _stacks_of_layers(analysis)
    stacks: dict[Stack, int] = {}
    leaves = leaves_of(analysis)
    columns = (leaves[name].tolist() for name in ("layer", "op", "kernel", "ns"))
    for layer, op, kernel, ns in zip(*columns, strict=True):
        stack = (*(layers[layer] if layer >= 0 else ()), *(_frame(name) for name in (op, kernel) if name))
        stacks[stack] = stacks.get(stack, 0) + ns
    return stacks


def _stacks_of_layers(analysis: Analysis) -> list[Stack]:
    """Return, for each row of the layers, the frames from the outermost layer to it."""
    stacks: list[Stack] = []
    paths = [str(each) for each in analysis.layers["path"]]
    for path, type_, parent in zip(paths, analysis.layers["type"], analysis.layers["parent"], strict=True):
        name = inside(path, paths[parent] if parent >= 0 else "")
        stacks.append((*(stacks[parent] if parent >= 0 else ()), _frame(f"{name} ({type_})" if type_ else name)))
    return stacks


def _frame(name: str) -> str:
    return printable(name.removeprefix("void "))
