"""Predicts how a stream of requests is served: passes are modelled, the engine is simulated."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from tracekit.analyzers.core import InputError
from tracekit.analyzers.cost import GPU, hardware
from tracekit.analyzers.predict import NONE
from tracekit.analyzers.serving import PAGE, SERVE_PLAN, Engine, Request, Run, StepTimes, over_time, simulate, summary
from tracekit.capture import find, load_config, longest_sequence
from tracekit.measure import Grid, grid, predicted_points
from tracekit.run import Say, Settings, silent

CHUNKED = "chunked-prefill"
_BATCHES = (1, 8, 64)
_SPARE = 0.9
"""Fraction of the GPU's memory that engines use."""


@dataclass(frozen=True)
class Question:
    """A model, a GPU, the requests, and the engines to compare."""

    settings: Settings
    gpu: str
    requests: Sequence[Request]
    engines: Sequence[str]
    """Optimizations joined with +, including `chunked-prefill`; "none" is the plain engine."""
    most_requests: int = 256
    most_tokens: int = 2048
    overhead_s: float = 0.0
    """Time per pass outside the model."""


@dataclass(frozen=True)
class ServePlan:
    """Results of each engine, in total and over time."""

    table: pd.DataFrame
    over_time: dict[str, pd.DataFrame]
    gpu: GPU


def serve_plan(question: Question, say: Say = silent) -> ServePlan:
    """Return the table SERVE_PLAN with one row per engine. Raises TracekitError if the model cannot decode."""
    gpu = hardware.find(question.gpu)
    if not question.engines:
        raise InputError("No engine is named.", "There is nothing to compare.", "Leave out --apply, or name some.")
    positions = longest_sequence(load_config(find(question.settings.model)))
    _check(question, positions)
    changes = list(dict.fromkeys(_change(name) for name in question.engines))
    decode = predicted_points(_grid(question, "decode", _batches(question), _contexts(question), changes), say)
    prefill = predicted_points(_grid(question, "prefill", [1], _prompts(question, positions), changes), say)
    rows, runs = list[dict[str, Any]](), dict[str, pd.DataFrame]()
    for name in question.engines:
        of_decode, of_prefill = (_where_it_applies(table, _change(name)) for table in (decode, prefill))
        refused = of_decode["refused"]
        engine = None if refused.ne("").all() else _engine(question, name, of_decode, of_prefill, gpu)
        if engine is None or not engine.pages:
            rows.append(_not_served(name, refused.max() or "The weights leave no memory for a KV cache."))
            continue
        say(f"serving {len(question.requests):,} requests: {name}")
        run = simulate(question.requests, engine)
        rows.append(summary(name, run, engine, PAGE))
        runs[name] = _with_share(run, engine)
    table = SERVE_PLAN.frame({column.name: [row[column.name] for row in rows] for column in SERVE_PLAN.columns})
    return ServePlan(table, runs, gpu)


def _check(question: Question, positions: int) -> None:
    """Raise InputError if the model cannot hold one of the requests."""
    longest = max(each.prompt_tokens + each.output_tokens for each in question.requests)
    if longest > positions:
        what = f"A request has {longest:,} tokens, prompt and output together."
        why = f"{question.settings.shown_name} has {positions:,} positions."
        raise InputError(what, why, "Give shorter requests, or another model.")


def _where_it_applies(sweep: pd.DataFrame, change: str) -> pd.DataFrame:
    """Return the points with a change; points to which the change does not apply are unchanged."""
    without = sweep[sweep["apply"] == NONE].reset_index(drop=True)
    changed = sweep[sweep["apply"] == change].reset_index(drop=True)
    applies = changed["refused"] == ""
    return changed.where(applies, without.assign(refused=changed["refused"]))


def _change(name: str) -> str:
    """Return the part of the engine's name that changes a pass."""
    return "+".join(part for part in name.split("+") if part not in (CHUNKED, NONE)) or NONE


def _grid(
    question: Question, workload: Any, batches: Sequence[int], lengths: Sequence[int], changes: Sequence[str]
) -> Grid:
    settings = replace(question.settings, workload=workload)
    return grid(settings, [question.gpu], batches, lengths, changes)


def _batches(question: Question) -> list[int]:
    most = min(question.most_requests, len(question.requests))
    return sorted({*(size for size in _BATCHES if size < most), most})


def _contexts(question: Question) -> list[int]:
    longest = max(each.prompt_tokens + each.output_tokens for each in question.requests) - 1
    return sorted({min(16, longest), max(1, longest // 4), longest})[-2:]


def _prompts(question: Question, positions: int) -> list[int]:
    """Return the lengths of modelled prompts. A pass over more tokens than the model has positions is extrapolated."""
    longest = max(each.prompt_tokens for each in question.requests)
    most = max(longest, min(question.most_tokens, sum(each.prompt_tokens for each in question.requests)))
    most = min(most, positions)
    return sorted({1, max(2, most // 4), most})


def _engine(question: Question, name: str, decode: pd.DataFrame, prefill: pd.DataFrame, gpu: GPU) -> Engine:
    """Return the engine. `rate` is in tokens per second, so a pass may count as several tokens."""
    passes = {
        (int(batch), int(length)): batch / rate
        for batch, length, rate in zip(decode["batch_size"], decode["seq_len"], decode["rate"], strict=True)
    }
    prompts = {int(length): time / 1e9 for length, time in zip(prefill["seq_len"], prefill["latency_ns"], strict=True)}
    return Engine(
        times=StepTimes(passes, prompts, question.overhead_s),
        pages=_pages(decode, gpu),
        most_requests=question.most_requests,
        most_tokens=question.most_tokens,
        chunked=CHUNKED in name.split("+"),
    )


def _pages(decode: pd.DataFrame, gpu: GPU) -> int:
    """Return the number of pages that fit. Memory per token is the slope between the modelled points."""
    tokens = (decode["batch_size"] * decode["seq_len"]).to_numpy(dtype=float)
    held = decode["memory_bytes"].to_numpy(dtype=float)
    low, high = int(tokens.argmin()), int(tokens.argmax())
    if not math.isfinite(held[low]) or tokens[high] == tokens[low]:
        return 0
    per_token = max(1.0, (held[high] - held[low]) / (tokens[high] - tokens[low]))
    fixed = held[low] - per_token * tokens[low]
    return max(0, int((_SPARE * gpu.memory_bytes - fixed) / per_token) // PAGE)


def _not_served(name: str, why: str) -> dict[str, Any]:
    numbers = {column.name: float("nan") if column.dtype == "float64" else -1 for column in SERVE_PLAN.columns}
    return numbers | {"engine": name, "problem": why}


def _with_share(run: Run, engine: Engine) -> pd.DataFrame:
    table = over_time(run)
    return table.assign(kv=table["used_pages"] / engine.pages)
