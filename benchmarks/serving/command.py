"""Scores the serving twin on published points of three engines, and on those of groups that are left out.

    python -m benchmarks serving [--rows N] [--left-out]
    python -m benchmarks serving --predict OUT [--tiny]    # first, and committed
    python -m benchmarks serving --record OUT [--tiny]     # then, on the GPU that was predicted; --tiny: on a CPU

Constants of engines.toml were fitted on a part of these points, so errors on all of them are no predictions.
--left-out repeats the last step of the fit (Gauss-Newton, from the fitted constants) without each engine, GPU and
model, and scores the points of that group. The start has seen them, so this is less than a fit from the beginning.
--record serves random requests with the continuous batching and paged attention of transformers, beside what --predict
wrote before.
"""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import pandas as pd
from msgspec import structs

from tracekit.analyzers.cost import hardware
from tracekit.analyzers.serving import (
    Deployment,
    Engine,
    Format,
    PassTimes,
    Request,
    Stream,
    all_engines,
    measures,
    simulate,
    stream,
)
from tracekit.serving import served_model

POINTS = Path(__file__).parents[1] / "data" / "serving_points.csv"
ROOT = Path(__file__).parents[2]
SMALL = ROOT / "examples" / "models" / "small-llama"
ARCHITECTURES = ROOT / "tracekit" / "capture" / "architectures"
RESULTS = ("ttft_ms", "tpot_ms")
_CHUNK = 512
"""Tokens of a pass of transformers at most."""
_STEP = 0.08
"""Change of a constant's logarithm for its derivative."""
_PRIOR = 0.25
"""Spread of a constant's logarithm around its fitted value."""
_WEIGHTS = np.array([0.35, 1.0])
_ROBUST = np.array([0.5, 0.15])
"""Residuals from which on the weight of a point falls."""
_OWN = ("layer_us", "experts", "pass_us", "request_us", "prompt_us", "arrival_ms", "front_ms", "front_token_us")
_FIXED = ("gap_us", "launches", "workspace_gb", "transfer_gbs", *_OWN)


def predicted(point: Any, changes: dict[str, float] | None = None) -> list[float]:
    """Return the time to the first token and per token in milliseconds; nan if the model does not fit."""
    engine = all_engines()[point.engine].with_numbers(changes or {})
    form = Format(point.dtype, engine.cache[point.dtype])
    of = Deployment(_model(point.model), hardware.find(point.gpu), engine, form, int(point.tp), int(point.ep))
    requests = _requests(point)
    run = simulate(PassTimes(of), requests) if of.tokens_that_fit > 1 else None
    if run is None or not run.served:
        return [np.nan, np.nan]
    found = measures(run, of, requests, {})
    return [(found.prefill_ms or found.ttft_ms).expected, found.tpot_ms.expected]


def points_of(batches: bool) -> pd.DataFrame:
    """Return the published points, or the published batches, whose first time is that until the last first token."""
    rows = pd.read_csv(POINTS, keep_default_na=False)
    return rows[(rows["requests"] != "") == batches].reset_index(drop=True)


def _requests(point: Any) -> Stream:
    if not point.requests:
        return stream(f"closed:{point.users},{point.prompt},{point.output}")
    pairs = (each.split(":") for each in point.requests.split())
    return Stream(tuple(Request(0.0, int(prompt), int(output)) for prompt, output in pairs), at_once=True)


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


def continuous(graphs: bool) -> Engine:
    """Return transformers with its continuous batching: paged, in flight, prompts in chunks of 512 tokens."""
    engine = all_engines()["transformers"]
    does = {"paged": True, "in_flight": True, "mixed": True, "chunked": True, "reserve": 0.0}
    engine = engine.with_numbers(
        dict.fromkeys(("arrival_ms", "front_ms", "front_token_us"), 0.0)
    )  # no server before it
    return replace(engine, **does, most_tokens=_CHUNK, graphs=all_engines()["vllm"].graphs if graphs else ())


def predict(out: Path, tiny: bool) -> None:
    """Write what the twin says of each stream, before anything is recorded."""
    rows = []
    for text, graphs in _runs(tiny):
        engine = continuous(graphs)
        of = Deployment(
            served_model(str(SMALL) if tiny else "llama-3.2-1b"), hardware.find("h100"), engine, Format("bf16")
        )
        requests = stream(text)
        found = measures(simulate(PassTimes(of), requests), of, requests, {})
        values = {name: structs.asdict(getattr(found, name)) for name in (*RESULTS, "tokens_per_s")}
        rows.append({"requests": text, "graphs": graphs, "gpu": "h100", **values})
    out.mkdir(parents=True, exist_ok=True)
    (out / "predictions.json").write_text(json.dumps(rows, indent=1) + "\n")


def record(out: Path, tiny: bool) -> list[dict[str, Any]]:
    """Serve each stream of the predictions in `out`, write recorded.json beside them, and return its rows."""
    predictions = json.loads((out / "predictions.json").read_text())
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    with torch.device("cpu" if tiny else "cuda"):
        model = AutoModelForCausalLM.from_config(_config(tiny), dtype=torch.bfloat16, attn_implementation="sdpa").eval()
    device = "cpu" if tiny else torch.cuda.get_device_name()
    rows: list[dict[str, Any]] = []
    for row in predictions:
        rows.append({**row, "recorded": _served(model, stream(row["requests"]).requests, row["graphs"])})
        print(json.dumps(rows[-1]), flush=True)
        text = json.dumps({"device": device, "torch": torch.__version__, "rows": rows}, indent=1)
        (out / "recorded.json").write_text(text + "\n")
    return rows


def _runs(tiny: bool) -> list[tuple[str, bool]]:
    if tiny:
        return [("poisson:20,24,6", False)]
    return [(f"poisson:{rate},512,64", graphs) for rate in (16, 32) for graphs in (False, True)]


def _config(tiny: bool) -> Any:
    """Return the architecture; weights are drawn."""
    from transformers import AutoConfig

    if tiny:
        return AutoConfig.from_pretrained(SMALL)
    values = json.loads((ARCHITECTURES / "llama-3.2-1b.json").read_text())["config"]
    return AutoConfig.for_model(**values)


def _served(model: Any, requests: Sequence[Request], graphs: bool) -> dict[str, float]:
    """Return the means of the recorded times, after two requests that warm up."""
    from transformers import GenerationConfig
    from transformers.generation.configuration_utils import ContinuousBatchingConfig

    generation = GenerationConfig(do_sample=False, eos_token_id=-1, max_new_tokens=4)
    batching = ContinuousBatchingConfig(
        max_batch_tokens=_CHUNK, num_blocks=64 if model.device.type == "cpu" else 512, use_cuda_graph=graphs
    )
    manager = model.init_continuous_batching(generation, batching)
    manager.start()
    try:
        for number in range(2):
            manager.add_request([1] * requests[0].prompt_tokens, f"warm-{number}", max_new_tokens=4)
            manager.get_result(timeout=120)
        return _sent(manager, requests)
    finally:
        manager.stop(block=True)


def _sent(manager: Any, requests: Sequence[Request]) -> dict[str, float]:
    """Add each request when it is due, and return means over the requests."""
    started, added, stamps = time.perf_counter(), list[float](), dict[str, list[float]]()
    while len(stamps) < len(requests):
        while len(added) < len(requests) and time.perf_counter() - started >= requests[len(added)].arrival_s:
            number, due = len(added), requests[len(added)]
            ids = [(7 * number + place) % 400 + 1 for place in range(due.prompt_tokens)]
            added.append(time.perf_counter())
            manager.add_request(ids, str(number), max_new_tokens=due.output_tokens, record_timestamps=True)
        result = manager.get_result(timeout=0.002)
        if result is not None and result.error:
            raise RuntimeError(result.error)
        if result is not None and result.is_finished():
            stamps[result.request_id] = result.timestamps
    first = [stamps[str(number)][0] - at for number, at in enumerate(added)]
    between = [(each[-1] - each[0]) / (len(each) - 1) for each in stamps.values() if len(each) > 1]
    took = max(each[-1] for each in stamps.values()) - started
    tokens = sum(len(each) for each in stamps.values())
    return {"ttft_ms": 1e3 * mean(first), "tpot_ms": 1e3 * mean(between), "tokens_per_s": tokens / took}


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=400, help="points, drawn by a fixed seed")
    parser.add_argument("--left-out", action="store_true")
    parser.add_argument("--predict", type=Path, metavar="OUT")
    parser.add_argument("--record", type=Path, metavar="OUT")
    parser.add_argument("--tiny", action="store_true", help="a small model and stream, on a CPU")
    asked = parser.parse_args(words)
    if asked.predict:
        predict(asked.predict, asked.tiny)
        return
    if asked.record:
        record(asked.record, asked.tiny)
        return
    points = points_of(batches=False)
    points = points.sample(min(asked.rows, len(points)), random_state=5).reset_index(drop=True)
    base = residuals(points)
    found = {"fitted": base}
    if asked.left_out:
        slopes = derivatives(points, base)
        keys = ("engine", "gpu", "model")
        found |= {f"without the point's {key}": left_out(points, key, base, slopes) for key in keys}
    print("\n".join(lines(points, found)))
    batches = points_of(batches=True)
    first, token = np.abs(np.expm1(-residuals(batches))).mean(axis=0)
    print(f"\n{len(batches)} batches, mean error: {first:.1%} until the last first token, {token:.1%} per token")


if __name__ == "__main__":
    main()
