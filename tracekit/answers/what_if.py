"""From a trace and the names of optimizations to what they would make of the run."""

from dataclasses import replace
from pathlib import Path

from tracekit.analyzers import cache, hardware
from tracekit.analyzers.errors import InputError
from tracekit.analyzers.hardware import GPU
from tracekit.analyzers.prediction.baseline import Baseline
from tracekit.analyzers.prediction.projection import of_collectives, of_estimates
from tracekit.analyzers.prediction.start import start
from tracekit.analyzers.prediction.values import Prediction
from tracekit.calibration.correction import Correction, here
from tracekit.optimizations import find, in_order, parse
from tracekit.optimizations.combined import Combined
from tracekit.optimizations.other_gpu import OtherGPU
from tracekit.planning.explain import op_class_times
from tracekit.planning.memory_fit import memory_fit
from tracekit.planning.recommend import advise, fit_problems, latency_us, why_nothing
from tracekit.planning.scenarios import speedup, too_large
from tracekit.planning.search import Search, Steps
from tracekit.planning.starting_point import doubts, start_of


def predict(
    path: str | Path,
    apply: str = "",
    gpu: str | None = None,
    batch_size: int | None = None,
    *,
    gpu_file: str | Path | None = None,
) -> Prediction:
    """What the run in a trace file or a run's folder would be with optimizations (names joined with "+"), on another
    GPU, at another batch; with none of these, after its best plan for latency.

    `gpu` names the GPU of a trace that does not say where it ran; for one that does, where the run is predicted.
    `gpu_file` is a TOML file that describes GPUs; with one GPU in it, `gpu` may be left out.
    Unless optimizations are named, each of them alone and the best plan are predicted as well. Raises UnknownNameError
    for a name, and InputError when nothing can be predicted from the run, or what is asked cannot be done to it.
    """
    named = hardware.asked(gpu, gpu_file)
    asked = _asked(apply, batch_size)
    base = _baseline(path, named)
    steps = (OtherGPU(named), *asked) if named and named != base.gpu else asked
    search = Search(base)
    together = _checked(search, steps)
    if apply:
        return _prediction(search, together)
    advice = advise(_as_start(search, steps))
    predicted = _prediction(search, together if steps else Combined(advice.latency_steps))
    fit = predicted.memory_fit or advice.memory_fit
    return replace(predicted, considered=advice.considered, plan=advice.plan, memory_fit=fit)


def _asked(apply: str, batch_size: int | None) -> Steps:
    chosen = [parse(apply)] if apply else []
    if batch_size is not None:
        chosen.append(find(f"batching:{batch_size}"))
    return tuple(step for each in chosen for step in (each.steps if isinstance(each, Combined) else (each,)))


def _baseline(path: str | Path, named: GPU | None) -> Baseline:
    analysis, base = start(cache.load(path), named)
    if base is None:
        raise InputError(f"Nothing can be predicted from {path}.", why_nothing(analysis), "Record a run on a GPU.")
    return base


def _checked(search: Search, steps: Steps) -> Combined:
    """The steps together. Raises InputError when they cannot be done to this run."""
    together = Combined(in_order(steps))
    refused = together.obstacle(search.base)
    if not refused and not any(isinstance(step, OtherGPU) for step in steps):  # there, the prediction says so itself
        refused = too_large(search.scenarios(steps).expected, search.base)
    if refused:
        raise InputError(
            f"{together.id} cannot be applied to this run.", refused, "See what can be: leave out --apply."
        )
    return together


def _as_start(search: Search, steps: Steps) -> Baseline:
    """The run as the steps make it, to predict from."""
    after, base = search.scenarios(steps).expected, search.base
    return replace(after, stated_ns=base.stated_ns * after.latency_ns / base.latency_ns)


def _prediction(search: Search, together: Combined) -> Prediction:
    base, after = search.base, search.scenarios(together.steps)
    gain, change = speedup(search.scenarios(()), after), _correction(base, together)
    gain = change.of(gain) if change else gain
    times = op_class_times(base, after.expected)
    fit, _ = memory_fit(Search(after.expected))
    notes = (*((str(change),) if change else ()), *together.notes(base))
    return Prediction(
        applied=tuple(step.name for step in together.steps),
        gpu=after.expected.gpu,
        batch_size=after.expected.batch_size or None,
        baseline=start_of(base),
        latency_us=latency_us(base, gain, after.work),
        memory=after.expected.memory,
        speedup=gain,
        work_factor=after.work,
        by_op_class=times,
        how_to=tuple(step.how(before) for step, before in together.stages(base)),
        memory_fit=fit,
        caveats=(
            *(found.row()[3] for found in fit_problems(fit)),
            *doubts(base),
            *_misfit(after.expected),
            *of_estimates(after.expected.gpu),
            *_collectives(base, after.expected),
            *notes,
            *together.caveats,
        ),
    )


def _correction(base: Baseline, together: Combined) -> Correction | None:
    """What was measured of the same on this machine, if it has the run's GPU."""
    capture = base.source.capture
    return here(base.gpu.id, together.id, capture.workload) if capture and together.steps else None


def _collectives(base: Baseline, after: Baseline) -> tuple[str, ...]:
    """What another GPU's links leave of collectives."""
    said = of_collectives(base).strip() if after.gpu != base.gpu else ""
    return (said,) if said else ()


def _misfit(after: Baseline) -> tuple[str, ...]:
    """That the GPU has no units for the run's types."""
    if after.gpu.supports("bf16") or not any(cost.precision == "bf16" for cost in after.ops.cost if cost):
        return ()
    return (f"{after.gpu.name} has no bf16: it is computed as fp32. Add half-precision:fp16 to run in fp16 there.",)
