"""Names that try to be markup, commands or formulas."""

import pandas as pd
from msgspec.structs import replace
from verified_runs import verified

from tracekit.analyzers.core import Interval
from tracekit.analyzers.results import Analysis, Change, Costs, Evidence, OpClassTime, PlanStep, Recommendation, say

SCRIPT = "</script><script>document.title='broken'</script>"
IMAGE = "<img src=http://example.com/x onerror=\"document.title='broken'\">"
QUOTES = "\"'`{{ 7 * 7 }}{% raw %}%{x}"
REVERSED = "kernel\u202eltr\u2066\u200fx\x1b[31m"
LONG = "templated<" + "x" * 10_000 + ">"
CLIPBOARD = "\x1b]52;c;cHduZWQ=\x07\x1b[2J\x9b31m"
FORGED_ROW = 'gemm\r=HYPERLINK("http://evil/?",1),999999,1,1'
FORMULA = "=cmd|' /C calc'!A0"
NAMES = (FORMULA, FORGED_ROW, CLIPBOARD, SCRIPT, IMAGE, QUOTES, REVERSED, LONG)


def hostile(analysis: Analysis) -> Analysis:
    """Return the analysis with every name replaced."""
    advice = analysis.recommendations[0]
    said = tuple(say("layers", *(_named(role, name) for role in ("layer", "launches", "time"))) for name in NAMES)
    nasty = Recommendation(
        id="x",
        title=SCRIPT,
        speedup=advice.speedup,
        reason=said[:2],
        evidence=said,
        how_to=SCRIPT,
        caveats=(REVERSED,),
    )
    capture = analysis.source.capture
    verification = verified(analysis).verified
    assert capture is not None
    assert verification is not None
    return replace(
        analysis,
        source=replace(analysis.source, device_name=IMAGE, format=SCRIPT, gpu=analysis.source.gpu, capture=None),
        work=analysis.work.assign(
            **dict.fromkeys(("name", "op_name", "phase"), _cycled(analysis.work).astype("category"))
        ),
        layers=analysis.layers.assign(path=_cycled(analysis.layers), type=_cycled(analysis.layers)),
        layer_types=analysis.layer_types.assign(type=_cycled(analysis.layer_types)),
        ops=analysis.ops.assign(name=_cycled(analysis.ops)),
        kernels=analysis.kernels.assign(name=_cycled(analysis.kernels), op=_cycled(analysis.kernels)),
        phases=analysis.phases.assign(name=SCRIPT),
        ranges=analysis.ranges.assign(name=_cycled(analysis.ranges)),
        gaps=analysis.gaps.assign(op=_cycled(analysis.gaps).astype("category")),
        idle_causes=analysis.idle_causes.assign(op=_cycled(analysis.idle_causes)),
        host_causes=analysis.host_causes.assign(
            name=_cycled(analysis.host_causes),
            location=_cycled(analysis.host_causes),
            caller=_cycled(analysis.host_causes),
        ),
        host_spans=analysis.host_spans.assign(name=_cycled(analysis.host_spans).astype("category")),
        plan=(_step(SCRIPT), _step(IMAGE)),
        verified=replace(
            verification, results=(replace(verification.results[-1], id="x", title=QUOTES, error=SCRIPT),)
        ),
        problems=analysis.problems.assign(message=IMAGE, advice=LONG, code=QUOTES),
        recommendations=(nasty,),
    )


def _step(name: str) -> PlanStep:
    gain = Interval(1.1, 1.2, 1.3)
    change = Change((OpClassTime(name, 2, 1),))
    return PlanStep(
        id=name.split(":")[0],
        name=name,
        title=name,
        speedup=gain,
        cumulative=gain,
        latency_us=gain,
        memory_bytes=None,
        explained=change,
        how_to=name,
        caveats=(name,),
        costs=Costs(name, name, name),
    )


def _named(role: str, name: str) -> Evidence:
    return Evidence(role, name, "layer_types", "type", name)


def _cycled(frame: pd.DataFrame) -> "pd.Series[str]":
    return pd.Series([NAMES[row % len(NAMES)] for row in range(len(frame))], index=frame.index, dtype=object)
