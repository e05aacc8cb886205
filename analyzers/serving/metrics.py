"""What a simulated run gives: times and rates as intervals, what the passes are spent on, cost and energy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from tracekit.analyzers.core import Column, Interval, Table
from tracekit.analyzers.serving.declarations import Width
from tracekit.analyzers.serving.deployment import Deployment
from tracekit.analyzers.serving.request_stream import Run, Served, Stream

SERVE_PLAN = Table(
    "serve_plan",
    "A way to serve a stream of requests, simulated. Columns with _low and _high hold the ends of an interval.",
    Column("setting", "object", "", "engine, formats and GPUs"),
    Column(
        "gpus", "int64", "", "GPUs that serve the stream: those of one copy of the model, or of all copies of two pools"
    ),
    Column(
        "tokens_per_s", "float64", "", "generated tokens divided by the time from the first arrival to the last token"
    ),
    Column("tokens_per_s_low", "float64", "", "its lower end"),
    Column("tokens_per_s_high", "float64", "", "its upper end"),
    Column("ttft_ms", "float64", "ms", "time from a request's arrival to its first token, mean of the requests"),
    Column("ttft_ms_low", "float64", "ms", "its lower end"),
    Column("ttft_ms_high", "float64", "ms", "its upper end"),
    Column("ttft_p99_ms", "float64", "ms", "time to the first token, 99th percentile of the requests"),
    Column(
        "tpot_ms",
        "float64",
        "ms",
        "time per output token after the first, mean of the requests; of a batch, of the passes without prompts",
    ),
    Column("tpot_ms_low", "float64", "ms", "its lower end"),
    Column("tpot_ms_high", "float64", "ms", "its upper end"),
    Column("tbt_p99_ms", "float64", "ms", "time between two tokens of a request, 99th percentile of the tokens"),
    Column("prefill_ms", "float64", "ms", "batch: time until every request has its first token"),
    Column("goodput_per_s", "float64", "", "requests a second that keep the limits of --slo; without limits, all"),
    Column("kv_mean", "float64", "", "part of the KV cache in use, mean over time"),
    Column("kv_max", "float64", "", "part of the KV cache in use, at most"),
    Column("running_max", "int64", "", "requests in flight at most"),
    Column("put_off", "int64", "", "preemptions: a request returned its pages and was prefilled again"),
    Column("refused", "int64", "", "requests that the KV cache cannot hold"),
    Column("kv_tokens", "int64", "", "tokens that the KV cache holds"),
    Column("cost_per_million", "float64", "", "price of a million output tokens, in the currency of --price"),
    Column("joules_per_token", "float64", "J", "energy of the GPUs for each output token, modelled"),
    Column("problem", "object", "", "why this cannot be served; empty: it can"),
)
PARTS = {
    "products": "reading and multiplying weights",
    "experts": "reading and multiplying experts",
    "cache": "reading the KV cache",
    "prompts": "attention over prompts",
    "sums": "sums between GPUs",
    "glue": "norms, activations and other small kernels",
    "sampling": "the vocabulary and sampling",
    "host": "the host",
}
"""Words for the parts of a pass."""
_WATTS = {"products": 0.75, "experts": 0.65, "cache": 0.65, "prompts": 1.0, "host": 0.2}
_OTHER_WATTS = 0.45


@dataclass(frozen=True)
class Measures:
    """Results of a run."""

    ttft_ms: Interval
    tpot_ms: Interval
    tokens_per_s: Interval
    prefill_ms: Interval | None
    """Time until every request of a batch has its first token."""
    ttft_p99_ms: float
    tbt_p99_ms: float
    goodput_per_s: float
    kept: float
    """Part of the requests that keep the limits."""
    parts: Mapping[str, float]
    """Part of the time by part of the passes."""
    joules_per_token: float
    tokens: int
    took_s: float


def measures(run: Run, of: Deployment, stream: Stream, slo: Mapping[str, float]) -> Measures:
    """Return the results of a run that has served at least one request."""
    engine, served = of.engine, run.served
    start = 0.0 if stream.at_once else engine.number("arrival_ms")
    first = np.array([each.waited_s for each in served]) * 1e3 + start
    between = np.array([each.between_s for each in served]) * 1e3
    between = between[~np.isnan(between)]
    tokens, took = sum(each.made for each in served), _took(served)
    widths = engine.widths(of.model.experts_only, stream.at_once)
    ttft, tpot = float(first.mean()), float(between.mean()) if len(between) else float("nan")
    if stream.at_once and run.decoded:
        tpot = 1e3 * run.decoding_s / run.decoded
    prefill = max(each.first_s for each in served) * 1e3
    decoding = _share_of_decoding(served)
    kept = _kept(first / 1e3, np.array([each.between_s for each in served]), slo)
    return Measures(
        ttft_ms=widths["ttft"].around(ttft),
        tpot_ms=widths["tpot"].around(tpot),
        tokens_per_s=_rate(tokens / took, widths, decoding),
        prefill_ms=widths["prefill"].around(prefill) if stream.at_once else None,
        ttft_p99_ms=float(np.percentile(first, 99)),
        tbt_p99_ms=_percentile(run.between, 0.99) * 1e3,
        goodput_per_s=kept * len(served) / took,
        kept=kept,
        parts=_shares(run.parts),
        joules_per_token=_joules(run.parts, of, took) / tokens,
        tokens=tokens,
        took_s=took,
    )


def between(slow: Measures, found: Measures, fast: Measures) -> Measures:
    """Return results whose intervals reach from those of a slower run to those of a faster one."""

    def reaching(name: str, first: Measures, last: Measures) -> Interval:
        low, high = getattr(first, name).low, getattr(last, name).high
        expected = getattr(found, name).expected
        return Interval(min(low, expected), expected, max(high, expected))

    return replace(
        found,
        ttft_ms=reaching("ttft_ms", fast, slow),
        tpot_ms=reaching("tpot_ms", fast, slow),
        tokens_per_s=reaching("tokens_per_s", slow, fast),
    )


def _took(served: Sequence[Served]) -> float:
    return max(max(each.last_s for each in served) - min(each.request.arrival_s for each in served), 1e-9)


def _share_of_decoding(served: Sequence[Served]) -> float:
    whole = sum(each.last_s - each.arrival_s for each in served)
    return sum(each.last_s - each.first_s for each in served) / whole if whole > 0 else 0.0


def _rate(rate: float, widths: Mapping[str, Width], decoding: float) -> Interval:
    """Return tokens per second, whose interval is that of the time: decoding, and waiting for the first token."""

    def slower(end: str) -> float:
        return float(decoding * getattr(widths["tpot"], end) + (1 - decoding) * getattr(widths["ttft"], end))

    return Interval(rate / max(1.0, slower("high")), rate, rate / min(1.0, slower("low")))


def _kept(first_s: np.ndarray, between_s: np.ndarray, slo: Mapping[str, float]) -> float:
    """Return the part of the requests that keep both limits; a request of one token has no time between tokens."""
    late = first_s > slo.get("ttft", np.inf)
    return float(1 - np.mean(late | (np.nan_to_num(between_s) > slo.get("tpot", np.inf))))


def _percentile(pairs: Sequence[tuple[float, int]], part: float) -> float:
    """Return the percentile of values with counts; nan without any."""
    if not pairs:
        return float("nan")
    values, counts = (np.array(each) for each in zip(*sorted(pairs), strict=True))
    return float(values[min(int(np.searchsorted(np.cumsum(counts), part * counts.sum())), len(values) - 1)])


def _shares(parts: Mapping[str, float]) -> dict[str, float]:
    whole = sum(parts.values()) or 1.0
    return dict(sorted(((name, seconds / whole) for name, seconds in parts.items()), key=lambda pair: -pair[1]))


def _joules(parts: Mapping[str, float], of: Deployment, took_s: float) -> float:
    """Return the energy of all GPUs: a part of the power limit for each part of the passes, and for waiting."""
    waiting_s = took_s * of.gpus / of.tensor - sum(parts.values())
    seconds = sum(_WATTS.get(name, _OTHER_WATTS) * each for name, each in parts.items())
    return (seconds + _WATTS["host"] * max(0.0, waiting_s)) * of.gpu.tdp_w * of.tensor


def row(setting: str, of: Deployment, run: Run, found: Measures, price: float | None) -> dict[str, object]:
    """Return a row of SERVE_PLAN."""
    flat = {
        f"{name}{end}": value
        for name in ("tokens_per_s", "ttft_ms", "tpot_ms")
        for end, value in _ends(getattr(found, name)).items()
    }
    used = [each.used for each in run.moments]
    hours = of.gpus * found.took_s / 3600
    return {
        **flat,
        "setting": setting,
        "gpus": of.gpus,
        "ttft_p99_ms": found.ttft_p99_ms,
        "tbt_p99_ms": found.tbt_p99_ms,
        "prefill_ms": found.prefill_ms.expected if found.prefill_ms else float("nan"),
        "goodput_per_s": found.goodput_per_s,
        "kv_mean": _over_time(run),
        "kv_max": max(used, default=0.0),
        "running_max": max((each.running for each in run.moments), default=0),
        "put_off": run.put_off,
        "refused": run.refused,
        "kv_tokens": int(of.tokens_that_fit),
        "cost_per_million": float("nan") if price is None else 1e6 * price * hours / found.tokens,
        "joules_per_token": found.joules_per_token,
        "problem": "",
    }


def _ends(interval: Interval) -> dict[str, float]:
    return {"": interval.expected, "_low": interval.low, "_high": interval.high}


def not_served(setting: str, gpus: int, why: str) -> dict[str, object]:
    """Return a row of SERVE_PLAN for what cannot be served."""
    numbers = {column.name: float("nan") if column.dtype == "float64" else -1 for column in SERVE_PLAN.columns}
    return numbers | {"setting": setting, "gpus": gpus, "problem": why}


def over_time(run: Run) -> pd.DataFrame:
    """Return time, requests in flight and waiting, and the part of the cache in use after each pass."""
    return pd.DataFrame([vars(each) for each in run.moments], columns=["time_s", "running", "waiting", "used"])


def _over_time(run: Run) -> float:
    """Return the time-weighted mean of the part of the cache in use."""
    if len(run.moments) < 2:
        return run.moments[0].used if run.moments else 0.0
    times, used = (np.array([getattr(each, name) for each in run.moments]) for name in ("time_s", "used"))
    return float((np.diff(times) * used[:-1]).sum() / max(times[-1] - times[0], 1e-12))
