"""The setup of a run, and the changes that an optimization makes to it, in plain PyTorch."""

from dataclasses import dataclass, replace

from plan import Run


@dataclass(frozen=True)
class Setup:
    model: str
    workload: str
    batch: int
    length: int
    dtype: str
    attention: str
    compile_mode: str = ""
    """Mode of torch.compile; "" for eager."""
    graph: bool = False
    """Whether the step is recorded into one torch.cuda.CUDAGraph and replayed."""
    static_cache: bool = False
    fused_optimizer: bool = False
    checkpointed: bool = False


def setup_of(run: Run, tiny: bool = False) -> Setup:
    length, batch = (min(run.length, 16), min(run.batch, 2)) if tiny else (run.length, run.batch)
    return Setup(run.model, run.workload, batch, length, run.dtype, run.attention)


def optimized(setup: Setup, names: str, tiny: bool = False) -> Setup:
    """Return the setup with these optimizations, whose names are joined with "+"."""
    steps = names.split("+")
    if {"compile", "cuda-graphs"} <= set(steps):
        setup = replace(_recordable(setup), compile_mode="reduce-overhead")
        steps = [step for step in steps if step not in ("compile", "cuda-graphs")]
    for step in steps:
        setup = _changed(setup, *step.partition(":")[::2], tiny=tiny)
    return setup


def _changed(setup: Setup, name: str, argument: str, tiny: bool) -> Setup:
    match name:
        case "compile":
            return replace(setup, compile_mode="default")
        case "cuda-graphs":
            return replace(_recordable(setup), graph=True)
        case "half-precision":
            return replace(setup, dtype=argument)
        case "sdpa":
            return replace(setup, attention="sdpa")
        case "static-cache":
            return replace(setup, static_cache=True)
        case "batching":
            return replace(setup, batch=2 * setup.batch if tiny else int(argument))
        case "fused-optimizer":
            return replace(setup, fused_optimizer=True)
        case "gradient-checkpointing":
            return replace(setup, checkpointed=True)
    raise ValueError(f"{name}: no optimization that is applied here")


def _recordable(setup: Setup) -> Setup:
    """Use a static cache, because the addresses in a CUDA graph are fixed."""
    return replace(setup, static_cache=setup.workload == "decode")
