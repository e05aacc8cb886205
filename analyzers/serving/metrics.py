"""Results of a simulated run: tokens per second, time to first token, time between tokens, KV cache use."""

import numpy as np
import pandas as pd

from tracekit.analyzers.core import Column, Table
from tracekit.analyzers.serving.engine import Engine, Run

SERVE_PLAN = Table(
    "serve_plan",
    "A way to serve a stream of requests, simulated.",
    Column("engine", "object", "", "difference from the plain engine; none: no difference"),
    Column(
        "tokens_per_s", "float64", "", "generated tokens divided by the time from the first arrival to the last token"
    ),
    Column("ttft_p50_s", "float64", "s", "time from arrival to the first token, median of the requests"),
    Column("ttft_p99_s", "float64", "s", "time from arrival to the first token, 99th percentile of the requests"),
    Column("tbt_p50_s", "float64", "s", "time between two tokens of a request, median"),
    Column("tbt_p99_s", "float64", "s", "time between two tokens of a request, 99th percentile"),
    Column("kv_mean", "float64", "", "part of the pages of the KV cache in use, mean over time"),
    Column("kv_max", "float64", "", "part of the pages of the KV cache in use, at most"),
    Column("running_max", "int64", "", "requests in flight at most"),
    Column("put_off", "int64", "", "number of preemptions: a request returned its pages and was prefilled again"),
    Column("refused", "int64", "", "requests that the KV cache cannot hold"),
    Column("kv_tokens", "int64", "", "tokens that the KV cache holds"),
    Column("problem", "object", "", "why the engine cannot serve the requests; empty: it can"),
)


def summary(name: str, run: Run, engine: Engine, page: int) -> dict[str, object]:
    """Return a row of SERVE_PLAN."""
    first = [each.tokens[0] - each.request.arrival_s for each in run.served]
    between = np.concatenate([np.diff(each.tokens) for each in run.served]) if run.served else np.zeros(0)
    used, whole = _over_time(run) / max(1, engine.pages), sum(len(each.tokens) for each in run.served)
    begun = min((each.request.arrival_s for each in run.served), default=0.0)
    ended = run.moments[-1].time_s if run.moments else begun
    return {
        "engine": name,
        "tokens_per_s": whole / (ended - begun) if ended > begun else float("nan"),
        **_percentiles("ttft", np.array(first)),
        **_percentiles("tbt", between),
        "kv_mean": float(used),
        "kv_max": max((each.used_pages for each in run.moments), default=0) / max(1, engine.pages),
        "running_max": max((each.running for each in run.moments), default=0),
        "put_off": run.put_off,
        "refused": run.refused,
        "kv_tokens": engine.pages * page,
        "problem": "",
    }


def over_time(run: Run) -> pd.DataFrame:
    """Return time, requests in flight and waiting, and pages in use after each pass."""
    return pd.DataFrame([vars(each) for each in run.moments], columns=["time_s", "running", "waiting", "used_pages"])


def _over_time(run: Run) -> float:
    """Return the time-weighted mean of the pages in use."""
    if len(run.moments) < 2:
        return float(run.moments[0].used_pages) if run.moments else 0.0
    times = np.array([each.time_s for each in run.moments])
    pages = np.array([each.used_pages for each in run.moments[:-1]])
    return float((np.diff(times) * pages).sum() / max(times[-1] - times[0], 1e-12))


def _percentiles(name: str, seconds: np.ndarray) -> dict[str, float]:
    if not len(seconds):
        return {f"{name}_p50_s": float("nan"), f"{name}_p99_s": float("nan")}
    return {f"{name}_p{part}_s": float(np.percentile(seconds, part)) for part in (50, 99)}
