"""All outputs agree on the first recommendation, and the plan agrees with the advice for its steps."""

import json
import math
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import jsonschema
import pandas as pd
import pytest

import tracekit
from tracekit.advise import WORTHWHILE
from tracekit.analyzers.predict import MOST_QUOTED
from tracekit.analyzers.results import START_UP_ONLY, Analysis
from tracekit.reports.answer import analysis_document, headline, html
from tracekit.reports.answer import summary as summary_of
from tracekit.reports.answer.cards import cards
from tracekit.reports.answer.export import to_json
from tracekit.reports.answer.headlines import LONGEST
from tracekit.reports.answer.plans import bars
from tracekit.reports.answer.spoken import named
from tracekit.reports.document import render
from tracekit.reports.words import duration, in_sentence, percent, schema, speedup

ROOT = Path(__file__).parents[1]
TRACES = sorted((ROOT / "examples" / "traces").rglob("*.json.gz"))
SLOW = sorted((ROOT / "benchmarks" / "slow_scripts" / "traces").glob("*.json.gz"))
SHARED = [
    path
    for kind in ("traces", "advice", "others", "nsys")
    for path in sorted((ROOT.parent / "shared" / kind).iterdir() if (ROOT.parent / "shared" / kind).exists() else ())
    if path.name.endswith((".json.gz", ".sqlite"))
]
PAGES = ("gpt2_decode", "gpt2_train", "mistral-7b_prefill", "compile-and-graph", "gpu-only")
"""Samples of a launch-bound and a compute-bound run, of training, of CUDA graphs, and of a GPU-only trace."""
ROWS = 8
REPEATS = 1.09
"""Two measurements of the same differ by less than this factor."""
NO_BREAK_SPACE = "\N{NO-BREAK SPACE}"
VALIDATOR = jsonschema.Draft202012Validator(schema("analysis"))


def _strings_of(storage: str) -> AbstractContextManager[None]:
    return pd.option_context("mode.string_storage", storage)


@pytest.fixture(scope="module", params=[*TRACES, *SLOW, *SHARED], ids=lambda path: path.name.split(".")[0])
def analysis(request: pytest.FixtureRequest) -> Iterator[Analysis]:
    """Our samples are read as where pyarrow is installed, all others as where it is not, in less time."""
    with _strings_of("pyarrow" if request.param in TRACES else "python"):
        yield tracekit.analyze(request.param)


@pytest.fixture(scope="module")
def said(analysis: Analysis) -> str:
    return headline(analysis)


@pytest.fixture(scope="module")
def exported(analysis: Analysis) -> dict:
    return json.loads(to_json(analysis))


@pytest.fixture(scope="module")
def summary(analysis: Analysis) -> str:
    return summary_of(analysis)


@pytest.fixture(scope="module")
def text(analysis: Analysis) -> str:
    return render(analysis_document(analysis), "markdown")


def _shortened(exported: object) -> object:
    """Keep the first rows of each table. The others have the same columns and types."""
    if isinstance(exported, dict):
        return {key: _shortened(value) for key, value in exported.items()}
    return [_shortened(value) for value in exported[:ROWS]] if isinstance(exported, list) else exported


def test_the_first_advice_is_the_same_everywhere(
    analysis: Analysis, exported: dict, said: str, summary: str, text: str
) -> None:
    VALIDATOR.validate(_shortened(exported))
    if not analysis.recommendations:
        assert not analysis.plan
        assert exported["headline"]["first"] is None
        return
    first = analysis.recommendations[0]
    planned, _ = cards(analysis)
    assert exported["recommendations"][0]["id"] == exported["headline"]["first"] == planned[0].advice.id == first.id
    assert planned[0].advice.speedup == first.speedup
    is_named = in_sentence(first.title).lower() in said.lower().replace(", max", " with max")
    assert is_named or analysis.one_time_share >= START_UP_ONLY
    assert said in summary and said in exported["headline"]["text"]
    assert summary.index(f"next      {first.title}: predicted {speedup(first.speedup)}")
    assert f"| 1. | **{first.title.replace('_', chr(92) + '_')}** |" in text
    if analysis.plan:
        assert analysis.plan[0].name.split(":")[0] == first.id
        assert analysis.plan[0].speedup.expected == pytest.approx(first.speedup.expected)
    else:
        assert all(each.throughput or each.condition for each in analysis.recommendations)


def test_a_plan_has_no_step_that_loses(analysis: Analysis) -> None:
    alone = {option.id: option for option in analysis.considered}
    for step in analysis.plan:
        option = alone[step.name.split(":")[0]]
        assert step.speedup.expected >= WORTHWHILE
        assert option.speedup is None or option.speedup.expected >= 1
    assert not any(step.condition for step in analysis.plan) or len(analysis.plan) == 1


def beyond_physics(analysis: Analysis) -> Iterator[str]:
    """Yield the optimizations whose range promises more than there is to gain, beyond what repeats differ by. Data
    loading also pins what it copies, and what the GPU makes is not copied."""
    device, start = analysis.timeline.device, analysis.predicted_from
    exposed = device.exposed_communication_ns / max(device.span_ns, 1) if device else 0.0
    waits = start.latency_us / start.busy_us if start and start.busy_us else math.inf
    copies = analysis.work["busy_ns"][(analysis.work["category"] != "kernel").to_numpy()].sum()
    uncopied = waits / max(1 - copies / analysis.work["busy_ns"].sum(), 1e-9)
    most = {"overlap-communication": 1 / max(1 - exposed, 1e-9), "data-loading": uncopied}
    most |= {"avoid-syncs": waits, "preprocessing": uncopied}
    for option in analysis.considered:
        factor = re.search(r"batch (\d+) times", option.title)
        limit = float(factor[1]) if factor and option.id == "batching" else most.get(option.id, math.inf)
        if option.speedup and option.speedup.high > limit * REPEATS:
            yield option.id


def test_no_range_is_beyond_what_physics_allows(analysis: Analysis) -> None:
    """No more than the batch grows by, than communication that is exposed, than the waiting that was recorded."""
    assert all(each.speedup.low <= each.speedup.expected <= each.speedup.high for each in analysis.recommendations)
    assert not set(beyond_physics(analysis))


def test_latency_and_throughput_are_never_multiplied(analysis: Analysis) -> None:
    for step in analysis.plan:
        assert (step.cumulative is None) == step.throughput
    latency = [step.cumulative for step in analysis.plan if step.cumulative]
    assert [step.expected for step in latency] == sorted(step.expected for step in latency)


def test_the_headline_is_an_answer_in_two_lines(analysis: Analysis, said: str) -> None:
    assert len(said) <= LONGEST and "\n" not in said
    assert not re.search(r"`|at least 1\.0|bound is? ?unknown|undetermined|This run", said)
    assert said.startswith(named(analysis).partition(" (")[0])


def test_the_headline_gives_the_plan_as_one_number_and_a_range(analysis: Analysis, exported: dict, said: str) -> None:
    """They are those of the plan's last step for latency, and of the JSON. A wide range says what would narrow it."""
    steps = [step for step in analysis.plan if step.cumulative]
    if not steps or analysis.memory_fit or analysis.one_time_share >= START_UP_ONLY:
        return
    gain, start = steps[-1].cumulative, analysis.predicted_from
    assert gain and start
    assert f"{duration(start.unprofiled_us).split(' ')[0]} " in said
    assert f"→ {duration(start.unprofiled_us / gain.expected)} ({speedup(gain)})" in said
    assert ("Narrow it: " in said) == (gain.high > MOST_QUOTED * gain.low)
    last = [step for step in exported["plan"] if not step["throughput"]][-1]
    taken = [gain.expected * last["latency_us"]["expected"], gain.high * last["latency_us"]["low"]]
    assert taken == pytest.approx([start.unprofiled_us] * 2, rel=1e-3)
    assert last["cumulative"]["expected"] == pytest.approx(gain.expected, rel=1e-3)
    assert bars(analysis)[-1].latency_us.expected == pytest.approx(start.unprofiled_us / gain.expected)


def test_settings_that_are_known_are_said(analysis: Analysis, said: str) -> None:
    capture = analysis.source.capture
    if capture and capture.model:
        assert f"batch {capture.batch_size:,}, " in said and f"{capture.seq_len:,}" in said and "tokens" in said


def test_a_step_that_the_simulation_does_not_explain_is_reported_and_keeps_the_rest(analysis: Analysis) -> None:
    start = analysis.predicted_from
    reported = "step-not-reproduced" in set(analysis.problems["code"])
    if analysis.one_time_share < START_UP_ONLY:
        assert reported == (start is not None and start.failed is not None)


@pytest.mark.parametrize("name", PAGES)
def test_the_page_says_what_the_summary_says(name: str) -> None:
    with _strings_of("pyarrow"):
        analysis = tracekit.analyze(ROOT / "examples" / "traces" / f"h200_{name}.json.gz")
        page, idle = html.render(analysis), percent(1 - analysis.busy_share)
        assert f"idle {idle}" in summary_of(analysis)
    assert f"GPU idle</dt><dd><b>{idle.replace(' ', NO_BREAK_SPACE)}</b>" in page
    assert ('class="first"' in page) == bool(analysis.recommendations)
    assert all(f'id="advice-{first.id}" class="first"' in page for first in analysis.recommendations[:1])


def test_the_idle_share_is_one_number(analysis: Analysis, exported: dict, summary: str, text: str) -> None:
    if analysis.source.device == "cpu":
        return
    idle = 1 - analysis.busy_share
    assert f"idle {percent(idle)}" in summary
    assert percent(idle).lstrip("< ") in text
    start = exported["predicted_from"]
    assert start is None or start["idle_share"] == pytest.approx(idle, abs=1e-6)
    quoted = [fact["value"] for advice in exported["recommendations"] for fact in advice["facts"]]
    columns = [fact["column"] for advice in exported["recommendations"] for fact in advice["facts"]]
    assert all(
        value == pytest.approx(idle, abs=1e-6)
        for value, column in zip(quoted, columns, strict=True)
        if column == "idle_share"
    )


def test_what_runs_already_is_not_advised(analysis: Analysis) -> None:
    advised = {advice.id for advice in analysis.recommendations} | {step.name for step in analysis.plan}
    graphed = analysis.work["duration_ns"][analysis.work["graph"] >= 0].sum() > analysis.work["duration_ns"].sum() / 2
    if graphed:
        assert not advised & {"cuda-graphs", "max-autotune", "compile"}
    if analysis.source.runtime == "training":
        assert not advised & {"cuda-graphs", "max-autotune", "nf4", "llm-int8", "speculative-decoding", "paged-kv"}
    else:
        assert "fused-optimizer" not in advised
