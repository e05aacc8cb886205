"""Your own module with fused kernels: each session's steps, measured and predicted."""

import json
from pathlib import Path

_DATA = Path(__file__).parents[1] / "data/fused_steps_h100"
_OWN = """### Your own module

A hand-written decoder (16 layers of 2,048, RMS norms, gated MLPs, bf16; `benchmarks/fused_own_module.py`) on an
H100, by `tracekit.verify(model, inputs, "fused:all")`, which measures before any profiler runs. The prediction is that
of the modelled run, made afterwards. `verify` predicted 1.00 (0.97 to 1.03), because the phases in its trace and its
graph had different names; this is fixed now."""
_ALONE = """Each kernel for {shape}, timed in alternation with the ops and with `torch.compile`'s kernels for them,
{layers} layers, in a separate session:"""
_NAMES = {"prefill": "prefill, 8 × 1,024", "decode-like": "one token"}


def section() -> list[str]:
    return [_OWN, "\n".join(_steps()), *_alone()]


def _steps() -> list[str]:
    later, earlier = (json.loads((_DATA / f"own_module{which}.json").read_text()) for which in ("_again", ""))
    lines = ["| step | eager | fused | measured | modelled | difference of outputs |", "|---" * 6 + "|"]
    for name, row in later.items():
        times = [row["verify"][which]["median_us"] / 1e3 for which in ("before", "after")]
        off = row["verify"]["difference"]["relative"]
        lines.append(_line(_NAMES[name], times, row["verify"]["measured"], row["modelled"], off))
    low, expected, high = earlier["measured"]
    measured = {"low": low, "expected": expected, "high": high}
    times = [earlier["before_ms"], earlier["after_ms"]]
    modelled = later["decode-like"]["modelled"]
    lines.append(_line("one token, an earlier session", times, measured, modelled, earlier["relative_difference"]))
    return lines


def _line(name: str, times: list[float], measured: dict, modelled: dict, off: float) -> str:
    spans = (f"{each['expected']:.2f}× ({each['low']:.2f} to {each['high']:.2f})" for each in (measured, modelled))
    return f"| {name} | {times[0]:.1f} ms | {times[1]:.1f} | {' | '.join(spans)} | {off:.1%} |"


def _alone() -> list[str]:
    """Return the kernels that a session timed alone; nothing before there is one."""
    path = _DATA / "own_module_kernels.json"
    rows = json.loads(path.read_text()) if path.is_file() else {}
    parts = []
    for name, row in rows.items():
        if "plan" in row:
            parts += [_ALONE.format(shape=_NAMES[name], layers=row["layers"]), "\n".join(_plan(row["plan"]))]
    return parts


def _plan(rows: list[dict]) -> list[str]:
    lines = ["| group | ops | predicted | ours | torch.compile | of a copy |", "|---" * 6 + "|"]
    for row in rows:
        if row["measured_ns"] and row["measured_ns"] > 0:
            before, after, ours, compiled = (
                (row[f"{name}_ns"] or 0) / row["groups"] / 1e3 for name in ("before", "after", "measured", "compiled")
            )
            beside = f"{compiled:,.1f}" if compiled > 0 else "–"
            share = f"{row['roof_fraction']:.0%}" if row["roof_fraction"] and row["roof_fraction"] > 0 else "–"
            lines.append(f"| {row['pattern']} | {before:,.1f} µs | {after:,.1f} | {ours:,.1f} | {beside} | {share} |")
    return lines
