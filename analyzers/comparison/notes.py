"""What keeps two runs from being comparable in every respect."""

from tracekit.analyzers.comparison.result import Side

_SAME_WORK = 0.02
_SETTINGS = ("model", "workload", "batch_size", "seq_len", "new_tokens")


def notes(a: Side, b: Side) -> tuple[str, ...]:
    return tuple(note for note in (_origin(a, b), _timed(a, b), _settings(a, b), _work(a, b), _device(a, b)) if note)


def _origin(a: Side, b: Side) -> str:
    modelled = [name for name, side in (("A", a), ("B", b)) if side.source.kind == "modelled"]
    if not modelled:
        return ""
    return f"{' and '.join(modelled)} {'are' if len(modelled) > 1 else 'is'} modelled: nothing was measured there."


def _timed(a: Side, b: Side) -> str:
    if a.latency_from == "unprofiled" or (a.source.kind == b.source.kind == "modelled"):
        return ""
    return "Latencies are those of the traces: they hold the time that the profiler takes, which the host pays most of."


def _settings(a: Side, b: Side) -> str:
    of_a, of_b = a.source.capture, b.source.capture
    if of_a is None or of_b is None or not (of_a.model and of_b.model):
        return ""
    pairs = [(name, getattr(of_a, name), getattr(of_b, name)) for name in _SETTINGS]
    unlike = [f"{name.replace('_', ' ')} {x} and {y}" for name, x, y in pairs if x != y]
    return f"The runs differ in what they do: {', '.join(unlike)} (A and B)." if unlike else ""


def _work(a: Side, b: Side) -> str:
    if not a.flops > 0 or not b.flops > 0 or abs(b.flops / a.flops - 1) <= _SAME_WORK:
        return ""
    ratio = f"{b.flops / a.flops:.3g}"
    return f"A step of B does {ratio} times the FLOPs of a step of A, as far as they are known."


def _device(a: Side, b: Side) -> str:
    if a.source.device == b.source.device:
        return ""
    return "One of them ran on a CPU, whose ops are compared with the other's kernels."
