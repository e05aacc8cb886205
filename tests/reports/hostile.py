"""Names that try to be something else."""

from dataclasses import replace

import pandas as pd

from analyzers.results import Analysis, Recommendation

SCRIPT = "</script><script>document.title='broken'</script>"
IMAGE = "<img src=http://example.com/x onerror=\"document.title='broken'\">"
QUOTES = "\"'`{{ 7 * 7 }}{% raw %}%{x}"
REVERSED = "kernel\u202eltr\u2066\u200fx\x1b[31m"
LONG = "templated<" + "x" * 10_000 + ">"
NAMES = (SCRIPT, IMAGE, QUOTES, REVERSED, LONG)


def hostile(analysis: Analysis) -> Analysis:
    """Every name in the analysis, replaced."""
    advice = analysis.recommendations[0]
    nasty = Recommendation("x", SCRIPT, advice.speedup, IMAGE, (QUOTES, LONG), SCRIPT, (REVERSED,))
    capture = analysis.source.capture
    assert capture is not None
    return replace(
        analysis,
        source=replace(analysis.source, device_name=IMAGE, format=SCRIPT, gpu=analysis.source.gpu, capture=None),
        work=analysis.work.assign(name=_cycled(analysis.work).astype("category")),
        layers=analysis.layers.assign(path=_cycled(analysis.layers), type=_cycled(analysis.layers)),
        layer_types=analysis.layer_types.assign(type=_cycled(analysis.layer_types)),
        ops=analysis.ops.assign(name=_cycled(analysis.ops)),
        kernels=analysis.kernels.assign(name=_cycled(analysis.kernels), op=_cycled(analysis.kernels)),
        phases=analysis.phases.assign(name=SCRIPT),
        problems=analysis.problems.assign(message=IMAGE, advice=LONG, code=QUOTES),
        recommendations=(nasty,),
    )


def _cycled(frame: pd.DataFrame) -> "pd.Series[str]":
    return pd.Series([NAMES[row % len(NAMES)] for row in range(len(frame))], index=frame.index, dtype=object)
