"""Which optimizations a run gains from: each is predicted, the rest is listed with the reason against it."""

from dataclasses import replace

from analyzers.interval import Interval
from analyzers.prediction.baseline import Baseline
from analyzers.results import Analysis, Considered, Recommendation
from tracekit.optimizations import OPTIMIZATIONS
from tracekit.optimizations.base import Optimization
from tracekit.optimizations.predict import predicted_speedup, refusal

WORTHWHILE = 1.03
"""What promises less than this at the lower end is not recommended."""


def recommend(analysis: Analysis, base: Baseline | None) -> Analysis:
    """The analysis with its recommendations, best lower end first (throughput after latency), and all considered."""
    if base is None:
        return replace(analysis, considered=_nothing_to_predict(analysis))
    judged = [(optimization, _judge(optimization, base)) for optimization in OPTIMIZATIONS]
    worth = [(o, c) for o, c in judged if c.recommended]
    worth.sort(key=lambda pair: (pair[0].throughput, -pair[1].speedup.low if pair[1].speedup else 0.0))
    return replace(
        analysis,
        recommendations=tuple(_recommendation(o, c, base) for o, c in worth),
        considered=tuple(c for _, c in judged),
    )


def _judge(optimization: Optimization, base: Baseline) -> Considered:
    objection = refusal(optimization, base)
    if objection:
        return Considered(optimization.id, optimization.title, False, objection, None)
    speedup = predicted_speedup(optimization, base)
    if speedup.low >= WORTHWHILE:
        return Considered(optimization.id, optimization.title, True, optimization.reason(base), speedup)
    return Considered(optimization.id, optimization.title, False, _against(speedup), speedup)


def _against(speedup: Interval) -> str:
    if speedup.high < 1:
        return "It would make the run slower."
    return "It changes nothing here." if speedup.high < WORTHWHILE else "It may not pay."


def _recommendation(optimization: Optimization, considered: Considered, base: Baseline) -> Recommendation:
    assert considered.speedup is not None
    return Recommendation(
        id=optimization.id,
        title=optimization.title,
        speedup=considered.speedup,
        reason=considered.reason,
        evidence=optimization.evidence(base),
        how_to=optimization.how_to(base),
        caveats=optimization.caveats,
    )


def _nothing_to_predict(analysis: Analysis) -> tuple[Considered, ...]:
    return tuple(Considered(o.id, o.title, False, _why_nothing(analysis), None) for o in OPTIMIZATIONS)


def _why_nothing(analysis: Analysis) -> str:
    if analysis.source.device == "cpu":
        return "The trace has no GPU work to predict from."
    if analysis.source.gpu is None:
        return "The trace does not name a GPU that tracekit knows: name it with --gpu."
    return "No step that the trace marks holds GPU work."
