"""The same steps in a later session on another host, beside predictions from the first session's traces."""

import json
from pathlib import Path

_DATA = Path(__file__).parents[1] / "data/fused_steps_h100"
_BLIND = Path(__file__).parents[1] / "predictions/fused_steps_padded.json"
_PADDED = """### GPT-2 with a padded head

GPT-2's 50,257 outputs are not a multiple of the vector width. `torch.compile` pads them, and so do now
`padded_projection` and, in training, `cross_entropy`. The predictions were made by
`benchmarks/predictions/fused_steps_padded.json` before the third session on an H100, and compared with that session and
a fourth. In the fourth, `torch.compile` ran the prefill as well; its other kernel times are from earlier sessions with
the same eager kernels."""
_AGAIN = """### The same steps again

Another session on an H100 with another host. Processes were timed one at a time, with the others stopped and without a
profiler: the best of three rounds each. The speed-up was predicted before, from the traces of the session above
(*small*: training of 64 tokens, predicted from its own trace and the graph of 4 × 1,024); {inside} of {all} lie in
their intervals. If the step is host-bound, rounds of the same step differ by up to {spread:.2f} times."""
_SIGNS = """The sign is wrong for three host-bound steps of GPT-2: its norm is one launch of PyTorch; the fused kernel
of residual and norm saves a plain launch, but adds a Triton launch through Python. With only this kernel, a step of one
token takes {norm:.2f} ms; with only the GELU epilogue, which PyTorch launches, {gelu:.2f} ms; eager {eager:.2f} ms."""
_KERNELS = """Kernel times of these steps, from traces of this session; predicted from the earlier session's traces
(*small*: from this session's trace of the eager step):"""


def section() -> list[str]:
    rows = json.loads((_DATA / "again.json").read_text())
    inside = sum(_is_inside(row) for row in rows.values())
    spread = max(max(each) / min(each) for row in rows.values() for each in row["rounds"].values())
    rounds = rows["gpt2-decode"]["rounds"]
    norm, gelu, eager = (min(rounds[name]) for name in ("add_norm", "gelu_product", "eager"))
    return [
        _AGAIN.format(inside=inside, all=len(rows), spread=spread),
        "\n".join(_steps(rows)),
        _SIGNS.format(norm=norm, gelu=gelu, eager=eager),
        _KERNELS,
        "\n".join(_kernels(rows)),
        _PADDED,
        "\n".join(_padded()),
    ]


def _is_inside(row: dict) -> bool:
    predicted = row["predicted_speedup"]
    return bool(predicted["low"] <= row["eager_ms"] / row["fused_ms"] <= predicted["high"])


def _steps(rows: dict[str, dict]) -> list[str]:
    lines = ["| run | eager | fused | predicted | measured | rounds of fused |", "|---|---|---|---|---|---|"]
    for name, row in rows.items():
        low, expected, high = (row["predicted_speedup"][each] for each in ("low", "expected", "high"))
        cells = [
            f"{row['eager_ms']:.2f} ms",
            f"{row['fused_ms']:.2f}",
            f"{expected:.2f}× ({low:.2f} to {high:.2f})",
            f"{row['eager_ms'] / row['fused_ms']:.2f}×",
            ", ".join(f"{each:.2f}" for each in row["rounds"]["fused"]),
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _kernels(rows: dict[str, dict]) -> list[str]:
    lines = ["| run | eager | fused | saved: predicted | measured | error | launches |", "|---" * 7 + "|"]
    for name, row in rows.items():
        if "fused_kernel_ms" not in row:
            continue
        saved = row["eager_kernel_ms"] - row["fused_kernel_ms"]
        predicted = row["predicted_eager_kernel_ms"] - row["predicted_fused_kernel_ms"]["expected"]
        cells = [
            f"{row['eager_kernel_ms']:.2f} ms",
            f"{row['fused_kernel_ms']:.2f}",
            f"{predicted:.2f} ms",
            f"{saved:.2f}",
            f"{predicted / saved - 1:+.0%}",
            f"{row['eager_launches']} → {row['fused_launches']}",
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _padded() -> list[str]:
    blind, compiled = json.loads(_BLIND.read_text()), {"gpt2-prefill": "steps-gpt2.json", "gpt2-train": "compiled.json"}
    lines = [
        "| run | kernels: eager | fused | torch.compile | saved: predicted | measured | error "
        "| step: eager | fused | torch.compile | predicted |",
        "|---" * 11 + "|",
    ]
    first, second = (json.loads((_DATA / f"{name}.json").read_text()) for name in ("padded", "padded_again"))
    for name, row in first.items():
        earlier = json.loads((_DATA / compiled[name]).read_text())[name]["compiled_kernel_ms"]
        lines.append(_padded_line(name, {**row, "compiled_kernel_ms": earlier}, blind[name]))
        lines.append(_padded_line(f"{name}, again", second[name], blind[name]))
    return lines


def _padded_line(name: str, row: dict, blind: dict) -> str:
    saved, predicted = row["eager_kernel_ms"] - row["fused_kernel_ms"], expected_saving(blind)
    low, expected, high = (blind["speedup"][each] for each in ("low", "expected", "high"))
    cells = [
        f"{row['eager_kernel_ms']:.2f} ms",
        f"{row['fused_kernel_ms']:.2f}",
        _ms(row, "compiled_kernel_ms"),
        f"{predicted:.2f} ms",
        f"{saved:.2f}",
        f"{predicted / saved - 1:+.0%}",
        f"{row['eager_ms']:.1f} ms",
        f"{row['fused_ms']:.2f}, {row['eager_ms'] / row['fused_ms']:.2f}×",
        _ms(row, "compiled_ms"),
        f"{expected:.2f}× ({low:.2f} to {high:.2f})",
    ]
    return f"| {name} | {' | '.join(cells)} |"


def _ms(row: dict, key: str) -> str:
    return f"{row[key]:.2f}" if key in row else "–"


def expected_saving(predicted: dict) -> float:
    """Return the predicted saving of a step's kernels, in milliseconds."""
    saving: float = predicted["kernel_ms"] - predicted["kernel_after_ms"]["expected"]
    return saving
