"""Chapter: compares published speed-ups and step times with what tracekit predicts without their GPU."""

from collections.abc import Iterable
from pathlib import Path
from statistics import fmean

from accuracy import published_bert
from accuracy.chapter import Chapter, NothingToCompareError, at_least, at_most, percent, seen, table, within
from accuracy.published_cases import TABLE, cases
from accuracy.published_causes import cause
from accuracy.published_runs import Predicted, predicted
from accuracy.published_split import split
from tracekit.analyzers.core import Interval

_WORST = 8
_INTRO = """Each published run is modelled (`--device model`: without trace or GPU), and the optimization is predicted
from that. Baselines are eager PyTorch, or compiled into graphs if the publisher's were (torchao). A sign is right if
both speed-ups are on the same side of 1, or the published one is within 3 % of it. fp6, autoquant and float8
weight-only are left out, because tracekit has no such optimizations. Some constants were fitted to these rows, which
are therefore no test: the rates of fp8 GEMMs (`fp8-dynamic`), the int32 fallback (`int8-dynamic`), the host of the RTX
3080 Ti laptop, and the host factor of `compile` with fixed shapes. In 2025, torchao's int8 weights were widened inside
the GEMM, which PyTorch no longer does."""


def chapter(shared: Path) -> Chapter:
    if not (shared / TABLE).exists():
        raise NothingToCompareError(f"{TABLE} is not in {shared}.")
    predictions = [predicted(case) for case in cases(shared)]
    sections = [
        _INTRO,
        _by_optimization(predictions),
        "### Worst misses\n\n" + _worst(predictions),
        "### Every row\n\n" + _rows(predictions),
        "### Step times\n\n" + _step_times(predictions),
        "### BERT on an A100\n\n" + published_bert.section(),
        "### Time of a forward pass of GPT-2 on a T4, by part\n\n" + split(),
    ]
    targets = seen(
        at_least("sign of published speed-ups right", 0.98, _share(one.right_sign for one in predictions)),
        at_most("published speed-up, mean error", 0.10, fmean(one.error for one in predictions)),
        within("published speed-up inside its interval", 0.80, 0.95, _share(one.inside for one in predictions)),
    )
    return Chapter("Published end-to-end results", "\n\n".join(sections), targets)


def _by_optimization(predictions: list[Predicted]) -> str:
    groups: dict[str, list[Predicted]] = {}
    for one in predictions:
        groups.setdefault(one.case.apply, []).append(one)
    groups["all"] = predictions
    head = ["optimization", "rows", "mean error", "sign right", "inside"]
    return table(head, ([name, *_summary(group)] for name, group in groups.items()), 4)


def _summary(group: list[Predicted]) -> list[str]:
    shares = (_share(one.right_sign for one in group), _share(one.inside for one in group))
    return [str(len(group)), percent(fmean(one.error for one in group), 1), *(percent(share) for share in shares)]


def _worst(predictions: list[Predicted]) -> str:
    worst = sorted(predictions, key=lambda one: -one.error)[:_WORST]
    rows = ([*_setting(one), f"{one.case.speedup:.2f}", _interval(one.speedup), cause(one.case)] for one in worst)
    return table(["run", "optimization", "published", "predicted", "cause"], rows, 0)


def _rows(predictions: list[Predicted]) -> str:
    rows = (
        [*_setting(one), f"{one.case.speedup:.2f}", _interval(one.speedup), percent(one.error)] for one in predictions
    )
    return table(["run", "optimization", "published", "predicted", "error"], rows, 3)


def _step_times(predictions: list[Predicted]) -> str:
    """Return the distinct runs of the baselines."""
    once = {_setting(one)[0]: one for one in predictions}
    rows = [(run, f"{one.case.before:.2f}", _interval(one.before_ms), _error(one)) for run, one in once.items()]
    mean = fmean(abs(one.before_ms.expected / one.case.before - 1) for one in once.values())
    text = f"In ms, before the optimization; mean error {percent(mean, 1)}. Intervals: errors of host and kernel model."
    return f"{text}\n\n{table(['run', 'published', 'modelled', 'error'], rows, 3)}"


def _error(one: Predicted) -> str:
    return f"{100 * (one.before_ms.expected / one.case.before - 1):+.0f} %"


def _setting(one: Predicted) -> list[str]:
    case = one.case
    length = f", {case.seq} tokens" if case.seq else ""
    already = f", {case.already}" if case.already else ""
    run = f"{case.gpu}: {case.model} {case.workload}, {case.dtype}, batch {case.batch}{length}{already}"
    return [run, case.apply]


def _interval(value: Interval) -> str:
    return f"{value.expected:.2f} ({value.low:.2f} to {value.high:.2f})"


def _share(flags: Iterable[bool]) -> float:
    return fmean(map(float, flags))
