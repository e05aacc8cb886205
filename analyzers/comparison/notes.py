"""Notes on why two runs are not fully comparable."""

from tracekit.analyzers.comparison.comparison import Side

_SAME_WORK = 0.02
_SETTINGS = ("model", "workload", "batch_size", "seq_len", "new_tokens")


def notes(a: Side, b: Side) -> tuple[str, ...]:
    """Return sentences on why the two runs are not fully comparable."""
    return tuple(note for note in (_origin(a, b), _timed(a, b), _settings(a, b), _work(a, b), _device(a, b)) if note)


def _origin(a: Side, b: Side) -> str:
    modelled = [name for name, side in (("A", a), ("B", b)) if side.source.kind == "modelled"]
    if not modelled:
        return ""
    return f"{' and '.join(modelled)} {'are' if len(modelled) > 1 else 'is'} modelled, not measured."


def _timed(a: Side, b: Side) -> str:
    if a.latency_from == "unprofiled" or (a.source.kind == b.source.kind == "modelled"):
        return ""
    return "Latencies are those in the traces, and include the overhead of the profiler, most of which is host time."


def _settings(a: Side, b: Side) -> str:
    of_a, of_b = a.source.capture, b.source.capture
    if of_a is None or of_b is None or not (of_a.model and of_b.model):
        return ""
    pairs = [(name, getattr(of_a, name), getattr(of_b, name)) for name in _SETTINGS]
    unlike = [f"{name.replace('_', ' ')} {x} and {y}" for name, x, y in pairs if x != y]
    return f"The workloads differ: {', '.join(unlike)} (A and B)." if unlike else ""


def _work(a: Side, b: Side) -> str:
    if not a.flops > 0 or not b.flops > 0 or abs(b.flops / a.flops - 1) <= _SAME_WORK:
        return ""
    ratio = f"{b.flops / a.flops:.3g}"
    return f"A step of B has {ratio} times the known FLOPs of a step of A."


def _device(a: Side, b: Side) -> str:
    if a.source.device == b.source.device:
        return ""
    return "One run was on a CPU; its ops are compared with the other run's kernels."
