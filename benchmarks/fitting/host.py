"""Fits what ops cost the host, analyzers/predict/host_costs.toml, on steps timed on an H200's host.

    python -m benchmarks fitting.host [--dry-run]        (about a minute)

Models of full depth and little width, timed phase by phase, tell the classes of op apart. They were timed in a process
that a profiler had recorded in, which slows launches for good; full models, each in a separate process, tell the
scale, and how far it differs between processes and days.
"""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.fitting.constants import Constants, arguments, fitted, write
from benchmarks.measurements.steps import ModelledStep, full, modelled, narrow
from tracekit.analyzers.core import Interval
from tracekit.analyzers.predict import CLASSES, HostCosts
from tracekit.analyzers.predict import host as host_costs

_CALIBRATION = Path(__file__).parents[1] / "data" / "h200_calibration.json"
_AS_CALIBRATED = "alone"
"""Processes that ran like the calibration: on the same day, with nothing beside them."""
_NOT_OF_EAGER_STEPS = "sync", "graph_replay", "triton_launch"
_GROUPS: Mapping[str, tuple[str, ...]] = {
    "launch": ("gemm", "attention", "norm", "pointwise", "sync"),
    **{name: (name,) for name in ("view", "autograd", "backward", "backward_op", "optimizer", "module", "model")},
}
_START = {"launch": 13.0, "view": 0.8, "autograd": 3.0, "backward": 8.0, "backward_op": 8.0, "optimizer": 1.5}
_HOST_BOUND = 0.65
"""Without host time, such a step takes less than this fraction of its time."""


def main() -> None:
    asked = arguments(__doc__)
    shape, error = _shape()
    steps = [step for step in map(modelled, full()) if step.floor_us(shape) < _HOST_BOUND * step.timed.median_us]
    factors = np.array([step.host_factor(shape) for step in steps])
    for step, factor in zip(steps, factors, strict=True):
        print(f"{step.timed.name:<42}{step.timed.process:<32}{factor:6.2f}")
    alone = factors[[step.timed.process == _AS_CALIBRATED for step in steps]]
    scale, calibrated = float(np.median(factors)), float(np.median(alone))
    host, span, narrow_span = shape.scaled(scale), _span(factors, scale), _span(alone, calibrated)
    base_us = _base_us(steps, host)
    h200 = ", ".join(f"{base_us * factor:.1f}" for factor in (span.low, 1.0, span.high))
    print(f"mean error by class {error:.1%}; host_op_us of h200 in analyzers/cost/hardware/calibration.toml: [{h200}]")
    if asked.write:
        day = {"ratio": calibrated / scale, "low": narrow_span.low, "high": narrow_span.high}
        op_us = {group: host.op_us[names[0]] for group, names in _GROUPS.items()}
        _write({"fit": {"base_us": base_us, "error": error}, "op_us": op_us, "calibrated": day, "probe_us": _probes()})


def _write(sections: Mapping[str, Mapping[str, float]]) -> None:
    file = Path(host_costs.__file__).with_name("host_costs.toml")
    for section, values in sections.items():
        write(file, section, {name: float(f"{value:.3g}") for name, value in values.items()})


def _shape() -> tuple[HostCosts, float]:
    """Return the cost of each class in the process that timed the narrow models, and the mean error."""
    with tempfile.TemporaryDirectory() as folder:
        parts = [part for timed in narrow(Path(folder)) for part in modelled(timed).measured_parts()]
    groups = [[CLASSES.index(name) for name in names] for names in _GROUPS.values()]
    work = np.array([[sums[group].sum() for group in groups] for sums, _ in parts])
    measured = np.array([microseconds for _, microseconds in parts])

    def ratios(tried: Constants) -> npt.NDArray[np.float64]:
        return work @ np.array([tried[name] for name in _GROUPS]) / measured

    best = fitted(lambda tried: float(np.abs(np.log(ratios(tried))).mean()), {**_START, "module": 6.0, "model": 100.0})
    op_us = {name: best[group] for group, names in _GROUPS.items() for name in names}
    costs = HostCosts(op_us={name: op_us[name] for name in CLASSES}, base_us=1.0, span=Interval(1, 1, 1), source="")
    return costs, float(np.abs(ratios(best) - 1).mean())


def _base_us(steps: list[ModelledStep], host: HostCosts) -> float:
    """Return the host time of a step of GPT-2, by its launches."""
    step = next(one for one in steps if one.timed.name == "gpt2 decode, fp32, sdpa")
    costs = np.array([host.op_us[name] for name in CLASSES])
    launches = sum(step.kernels[call] is not None for call in step.recording.call)
    return float((step.work @ costs).sum()) / launches


def _span(factors: npt.NDArray[np.float64], middle: float) -> Interval:
    low, high = np.percentile(factors, [5, 95]) / middle
    return Interval(float(low), 1.0, float(high))


def _probes() -> dict[str, float]:
    measured = json.loads(_CALIBRATION.read_text(encoding="utf-8"))["host_us"]
    return {name: median for name, (_, median, _) in measured.items() if name not in _NOT_OF_EAGER_STEPS}


if __name__ == "__main__":
    main()
