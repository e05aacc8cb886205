"""Recognizes steps of serving engines by the ranges that vLLM and SGLang record around each forward pass of a batch.

vLLM, vllm/v1/worker/gpu_worker.py, Worker.annotate_profile:
    execute_new_<requests>_cached_<requests>                                    vllm-project/vllm#22496, 0.11.1 to 0.13
    execute_context_<requests>(<tokens>)_generation_<requests>(<tokens>)        from 0.14 on
    execute_<tokens>_context_<requests>(sq..sk..)_generation_<requests>(sq..)   with detailed_trace_annotation, #37524
SGLang, build_step_span_name (sgl-project/sglang#23419; detailed_annotations add a suffix, #24911):
    step[EXTEND bs=<requests> toks=<tokens>], step[<ForwardMode> bs=<requests>]
    step[VERIFY bs=<requests>], step[DRAFT bs=<requests>]                       0.5.23: speculative decoding
A range around the capture of a CUDA graph names its size:
    capture_<tokens>_<mode>, capture_<tokens>_<subsystem>_<mode>                vLLM with capture_torch_profiler, 0.26
Older versions and other profilers record no such ranges. Then ops that only one engine registers tell which one runs.
"""

import re
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from tracekit.analyzers.core import Bools, Ints
from tracekit.analyzers.trace import ranges

USER_STEP = re.compile(r"(?:[A-Za-z]+[ _-])?(?:step|iteration|iter)[ _:#-]*\d+", re.IGNORECASE)
_VLLM = re.compile(r"execute_(?:\d+_)?context_(?P<prefill>\d+)\([^()]*\)_generation_(?P<decode>\d+)\([^()]*\)")
_TOKENS = re.compile(r"(?:context|generation)_\d+\((?:sq)?(\d+)")
_BATCH = re.compile(r"\bbs=(\d+)")
_SUMS = re.compile(r"(?:context|generation)_\d+\(([^()]*)\)")
_NUMBER = re.compile(r"\b([a-z_]+)=(\d+)")
_CAPTURED = re.compile(r"capture_(\d{1,7})_\w+")
_VLLM_2025 = re.compile(r"execute_new_(?P<prefill>\d+)_cached_(?P<decode>\d+)")
_SGLANG = re.compile(r"step\[(?P<mode>[A-Z][A-Z0-9_]*) bs=\d+(?: [^\[\]]*)?\]")
_MODES = {
    "EXTEND": "prefill",
    "SPLIT_PREFILL": "prefill",
    "DECODE": "decode",
    "MIXED": "mixed",
    "TARGET_VERIFY": "verify",
    "DRAFT_EXTEND": "draft",
    "DRAFT_EXTEND_V2": "draft",
}
_IDLE = "idle"
_OPS: dict[Literal["vllm", "sglang"], tuple[str, ...]] = {
    "sglang": ("sgl_kernel::", "sglang::"),
    "vllm": ("vllm::", "_C_cache_ops::", "_vllm_fa2_C::", "_vllm_fa3_C::"),
}
"""Engine -> prefixes of its ops. SGLang, which comes first, calls some ops of vLLM."""


def is_step_name(name: str) -> bool:
    """Return whether a range of this name marks a step rather than a part of the model."""
    ours = name.startswith("step: ")
    return bool(ours or ranges.PROFILER_STEP.fullmatch(name) or USER_STEP.fullmatch(name) or serving_phase(name))


def is_mark(name: str) -> bool:
    """Return whether a range of this name only marks a step or a phase."""
    return name.startswith("phase: ") or is_step_name(name)


def serving_phase(name: str) -> str | None:
    """Return the phase of a batch: prefill, decode, mixed (both), verify, draft or idle; None for any other range.

    vLLM's first format counts a prompt that continues in a later chunk as cached, so its later chunks are decode.
    """
    if batch := _VLLM.fullmatch(name) or _VLLM_2025.fullmatch(name):
        return _batch_phase(int(batch["prefill"]), int(batch["decode"]))
    if step := _SGLANG.fullmatch(name):
        return _MODES.get(step["mode"], step["mode"].lower().replace("_", " "))
    return None


def batch_size(name: str) -> int:
    """Return the size of the batch that a range names, by which engines choose a graph: tokens in vLLM, requests in
    SGLang. 0 if it names none."""
    if _VLLM.fullmatch(name):
        return sum(map(int, _TOKENS.findall(name)))
    match = _BATCH.search(name)
    return int(match[1]) if match else 0


def requests(name: str) -> int:
    """Return the number of requests in the batch that a range names; 0 if it names none."""
    if batch := _VLLM.fullmatch(name) or _VLLM_2025.fullmatch(name):
        return int(batch["prefill"]) + int(batch["decode"])
    return batch_size(name) if _SGLANG.fullmatch(name) else 0


class Batch(NamedTuple):
    """What a pass of an engine works on, as its range says."""

    prompts: int
    prompt_tokens: int
    """Tokens of all prompts in this pass."""
    prompt_keys: int
    """Tokens of these prompts that are in the cache after it."""
    decoding: int
    keys: int
    """Tokens in the cache of the requests that decode, together; 0: the range does not say it."""


def batch(name: str) -> Batch | None:
    """Return what a range says of its batch; None if it does not say how many prompts, tokens and requests it holds."""
    numbers = {key: int(value) for key, value in _NUMBER.findall(name)}
    if match := _VLLM.fullmatch(name):
        (tokens, keys), (_, decoded) = (_sums(text) for text in _SUMS.findall(name))
        return Batch(int(match["prefill"]), tokens, keys or tokens, int(match["decode"]), decoded)
    if not (step := _SGLANG.fullmatch(name)) or (kind := _MODES.get(step["mode"])) not in (
        "prefill",
        "decode",
        "mixed",
    ):
        return None
    tokens, size = numbers.get("c_sq", numbers.get("toks", 0)), numbers["bs"]
    prompts = {"prefill": size, "decode": 0, "mixed": numbers.get("c", 0)}[kind]
    if kind != "decode" and not (prompts and tokens):
        return None
    return Batch(prompts, tokens, numbers.get("c_sk", tokens), size - prompts, numbers.get("g_sk", 0))


def _sums(text: str) -> tuple[int, int]:
    """Return the tokens and the keys of `128` or `sq22sk60sqsq484sqsk1320`."""
    tokens, keys, *_ = (*map(int, re.findall(r"\d+", text)), 0, 0)
    return tokens, keys


def captured_size(name: str) -> int:
    """Return the size that a range around the capture of a graph names; 0 if it names none."""
    match = _CAPTURED.fullmatch(name)
    return int(match[1]) if match else 0


def engine_of(name: str) -> Literal["vllm", "sglang", ""]:
    """Return the serving engine that records ranges of this name, or ""."""
    if _VLLM.fullmatch(name) or _VLLM_2025.fullmatch(name):
        return "vllm"
    return "sglang" if _SGLANG.fullmatch(name) else ""


def engine_of_ops(names: Sequence[str]) -> Literal["vllm", "sglang", ""]:
    """Return the serving engine that registers one of these ops, or ""."""
    return next((engine for engine, prefixes in _OPS.items() if any(name.startswith(prefixes) for name in names)), "")


def _batch_phase(prefill: int, decode: int) -> str:
    if prefill and decode:
        return "mixed"
    return "prefill" if prefill else "decode" if decode else _IDLE


class UserRanges:
    """Host rows of category range. Each distinct name is tested once."""

    def __init__(self, host: pd.DataFrame) -> None:
        self._rows, self._of = np.flatnonzero((host["category"] == "range").to_numpy()), len(host)
        self._number, names = pd.factorize(host["name"].iloc[self._rows])
        self.names = [str(name) for name in names]

    def rows_of(self, wanted: Callable[[str], object]) -> Ints:
        """Return the rows whose name is `wanted`, in the order of the host table."""
        return self._rows[self._mask(wanted)]

    def are(self, wanted: Callable[[str], object]) -> Bools:
        """Return which rows of the host table are ranges whose name is `wanted`."""
        mask = np.zeros(self._of, dtype=bool)
        mask[self.rows_of(wanted)] = True
        return mask

    def names_of(self, wanted: Callable[[str], object]) -> list[str]:
        """Return the names of the rows of `rows_of`."""
        return [self.names[number] for number in self._number[self._mask(wanted)].tolist()]

    def is_ours(self, kind: str) -> Callable[[str], bool]:
        """Return a predicate for names of tracekit's ranges of a kind: step, phase or module."""
        return lambda name: (parsed := ranges.parse(name)) is not None and parsed[0] == kind

    def _mask(self, wanted: Callable[[str], object]) -> npt.NDArray[np.bool_]:
        return np.array([*(bool(wanted(name)) for name in self.names), False])[self._number]
