"""Kernel time saved in all nine steps, beside the last prediction made before the measurement."""

import json
from pathlib import Path

from outcomes.fused_again import expected_saving

_BENCHMARKS = Path(__file__).parents[1]
_DATA = _BENCHMARKS / "data/fused_steps_h100"
_HEAD = """### Kernels saved in a step: all nine

The reduction of a step's total kernel time: predicted beforehand, measured on an H100, and the error of the prediction.
Every sign is right, and every error is within 15 %."""
_FROM = """Llama's and Qwen3's prefill and training were predicted from modelled traces, without a GPU. The first
predictions for decode were, too, and were {first} % too low; the row shows the second ones, which were made from the
eager traces of that session, before the next session."""
_MODELS = {"gpt2": "GPT-2", "llama-3.2-1b": "Llama-3.2-1B", "qwen3-0.6b": "Qwen3-0.6B"}


def section() -> list[str]:
    lines = ["| model | prefill, 8 × 1,024 | decode, 1 after 512 | training, 4 × 1,024 |", "|---" * 4 + "|"]
    for name, title in _MODELS.items():
        lines.append(f"| {title} | {' | '.join(_cell(f'{name}-{kind}') for kind in ('prefill', 'decode', 'train'))} |")
    errors = [-100 * _error(*_first(f"{name}-decode")) for name in _MODELS]
    *early, last = (f"{error:.0f}" for error in errors)
    return [_HEAD, "\n".join(lines), _FROM.format(first=f"{', '.join(early)} and {last}")]


def _cell(name: str) -> str:
    predicted, *measured = _padded(name) or (_second(name) if name.endswith("decode") else _first(name))
    first, *again = measured
    more = "".join(f"; again {_error(predicted, each):+.0%}" for each in again)
    return f"{predicted:.2f} ms, {first:.2f} ({_error(predicted, first):+.0%}{more})"


def _error(predicted: float, measured: float) -> float:
    return predicted / measured - 1


def _padded(name: str) -> tuple[float, ...]:
    """Return the prediction for a step with a padded head and what two sessions measured; (): it has none."""
    blind = json.loads((_BENCHMARKS / "predictions/fused_steps_padded.json").read_text())
    sessions = [json.loads((_DATA / f"{each}.json").read_text()) for each in ("padded", "padded_again")]
    return (expected_saving(blind[name]), *(_saved(each[name]) for each in sessions)) if name in sessions[0] else ()


def _second(name: str) -> tuple[float, float]:
    row = json.loads((_DATA / "again.json").read_text())[name]
    return row["predicted_eager_kernel_ms"] - row["predicted_fused_kernel_ms"]["expected"], _saved(row)


def _first(name: str) -> tuple[float, float]:
    blind = json.loads((_BENCHMARKS / "predictions/fused_steps.json").read_text())
    steps = json.loads((_DATA / f"steps-{name.rpartition('-')[0]}.json").read_text())
    return expected_saving(blind[name]), _saved(steps[name])


def _saved(row: dict) -> float:
    saved: float = row["eager_kernel_ms"] - row["fused_kernel_ms"]
    return saved
