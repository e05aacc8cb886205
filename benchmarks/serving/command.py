"""Scores the serving twin on published points of three engines, and on those of groups that are left out.

    python -m benchmarks serving [--rows N] [--left-out]

Constants of engines.toml were fitted on a part of these points, so errors on all of them are no predictions.
--left-out repeats the last step of the fit (Gauss-Newton, from the fitted constants) without each engine, GPU and
model, and scores the points of that group. The start has seen them, so this is less than a fit from the beginning.
"""

import argparse
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tracekit.analyzers.cost import hardware
from tracekit.analyzers.serving import Deployment, Format, PassTimes, all_engines, measures, simulate, stream
from tracekit.serving import served_model

POINTS = Path(__file__).parents[1] / "data" / "serving_points.csv"
RESULTS = ("ttft_ms", "tpot_ms")
_STEP = 0.08
"""Change of a constant's logarithm for its derivative."""
_PRIOR = 0.25
"""Spread of a constant's logarithm around its fitted value."""
_WEIGHTS = np.array([0.35, 1.0])
_ROBUST = np.array([0.5, 0.15])
"""Residuals from which on the weight of a point falls."""
_OWN = ("layer_us", "experts", "pass_us", "request_us", "prompt_us", "arrival_ms")
_FIXED = ("gap_us", "launches", "workspace_gb", *_OWN)


def predicted(point: Any, changes: dict[str, float] | None = None) -> list[float]:
    """Return the time to the first token and per token in milliseconds; nan if the model does not fit."""
    engine = all_engines()[point.engine].with_numbers(changes or {})
    form = Format(point.dtype, engine.cache[point.dtype])
    of = Deployment(_model(point.model), hardware.find(point.gpu), engine, form, int(point.tp), int(point.ep))
    requests = stream(f"closed:{point.users},{point.prompt},{point.output}")
    run = simulate(PassTimes(of), requests) if of.tokens_that_fit > 1 else None
    if run is None or not run.served:
        return [np.nan, np.nan]
    found = measures(run, of, requests, {})
    return [found.ttft_ms.expected, found.tpot_ms.expected]


_model = cache(served_model)


def residuals(points: pd.DataFrame, changes: dict[str, float] | None = None, engine: str = "") -> np.ndarray:
    """Return the logarithms of measured over predicted, by point and result; with an engine, nan for the others."""
    rows = [
        [np.nan, np.nan] if engine and point.engine != engine else predicted(point, changes)
        for point in points.itertuples()
    ]
    return np.log(points[list(RESULTS)].to_numpy()) - np.log(np.array(rows, dtype=float))


def derivatives(points: pd.DataFrame, base: np.ndarray) -> np.ndarray:
    """Return how residuals change with the logarithm of each constant, by point, result and constant."""
    shared = [name for name in all_engines()["vllm"].constants if name not in _FIXED]
    asked = [("", name) for name in shared] + [(e, name) for e in ("vllm", "sglang", "trtllm") for name in _OWN]
    return np.stack([_derivative(points, base, *each) for each in asked], axis=-1)


def _derivative(points: pd.DataFrame, base: np.ndarray, engine: str, name: str) -> np.ndarray:
    value = all_engines()[engine or "vllm"].number(name) * np.exp(_STEP)
    return np.nan_to_num((residuals(points, {name: value}, engine) - base) / _STEP)


def left_out(points: pd.DataFrame, key: str, base: np.ndarray, slopes: np.ndarray) -> np.ndarray:
    """Return the residuals of each group of a column, with constants of a step of the fit without it."""
    found = base.copy()
    for name in points[key].unique():
        own = (points[key] == name).to_numpy()
        found[own] = base[own] + slopes[own] @ _step(base[~own], slopes[~own])
    return found


def _step(base: np.ndarray, slopes: np.ndarray) -> np.ndarray:
    known = np.isfinite(base).all(axis=1)
    weight = _WEIGHTS * np.sqrt(np.minimum(1, _ROBUST / np.maximum(np.abs(base[known]), 1e-9)))
    tall = (weight[..., None] * slopes[known]).reshape(-1, slopes.shape[-1])
    normal = tall.T @ tall + np.eye(tall.shape[1]) * (0.1 / _PRIOR) ** 2
    return np.clip(-np.linalg.solve(normal, tall.T @ (weight * base[known]).ravel()), -0.5, 0.5)


def scores(points: pd.DataFrame, off: np.ndarray) -> list[float]:
    """Return the median errors of both results, and the parts inside their intervals."""
    error = np.nanmedian(np.abs(np.expm1(-off)), axis=0)
    inside = []
    for place, name in enumerate(("ttft", "tpot")):
        engines = [all_engines()[engine] for engine in points["engine"]]
        kinds = [_model(model).experts_only for model in points["model"]]
        ends = [one.widths(kind, False)[name] for one, kind in zip(engines, kinds, strict=True)]
        low, high = np.log(np.array(ends)).T
        known = np.isfinite(off[:, place])
        inside.append(float(((low <= off[:, place]) & (off[:, place] <= high))[known].mean()))
    return [*error, *inside]


def lines(points: pd.DataFrame, found: dict[str, np.ndarray]) -> Iterator[str]:
    yield "| constants | first token, median error | inside | time per token, median error | inside |"
    yield "|---|---|---|---|---|"
    for name, off in found.items():
        first, token, first_inside, token_inside = scores(points, off)
        yield f"| {name} | {first:.1%} | {first_inside:.0%} | {token:.1%} | {token_inside:.0%} |"


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=400, help="points, drawn by a fixed seed")
    parser.add_argument("--left-out", action="store_true")
    asked = parser.parse_args(words)
    points = pd.read_csv(POINTS)
    points = points.sample(min(asked.rows, len(points)), random_state=5).reset_index(drop=True)
    base = residuals(points)
    found = {"fitted": base}
    if asked.left_out:
        slopes = derivatives(points, base)
        keys = ("engine", "gpu", "model")
        found |= {f"without the point's {key}": left_out(points, key, base, slopes) for key in keys}
    print("\n".join(lines(points, found)))


if __name__ == "__main__":
    main()
