import base64
import gzip
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hostile import LONG, SCRIPT, hostile
from msgspec.structs import replace
from verified_runs import verified

import tracekit
from tracekit.advise import reordered_by_measurements
from tracekit.analyzers.core import Interval
from tracekit.analyzers.cost import hardware
from tracekit.analyzers.results import Analysis, Change, Coverage, OpClassTime, PlanStep, Projection, Verified
from tracekit.reports.answer import headline, render
from tracekit.reports.answer.cards import cards
from tracekit.reports.answer.export import to_json
from tracekit.reports.answer.measured import measured_gains
from tracekit.reports.answer.page_tables import table_views
from tracekit.reports.answer.plans import bars, planned
from tracekit.reports.document import pages as embed


class Parsed(HTMLParser):
    """The page as an HTML parser sees it: elements, the text of each script, and all other text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "script":
            self.scripts.append((self.elements[-1][1], data))
        elif self.cdata_elem is None:
            self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def page(analysis: Analysis) -> str:
    return render(analysis)


def figures(page: str) -> dict[str, Any]:
    packed = next(text for attributes, text in Parsed(page).scripts if attributes.get("id") == "figures")
    return json.loads(gzip.decompress(base64.b64decode(packed)))


def test_it_is_one_file_without_network(page: str) -> None:
    parsed = Parsed(page)
    assert len(page.encode()) < 3_000_000
    for tag in ("link", "iframe", "img", "object", "embed", "base", "form"):
        assert parsed.all(tag) == []
    loaded = [attributes.get(name) for _, attributes in parsed.elements for name in ("src", "href", "action", "srcset")]
    assert all(url.startswith("#") for url in loaded if url)
    assert not re.search(r"https?://|url\(|@import", page)


def test_the_policy_allows_the_scripts_by_their_hashes_and_nothing_else(page: str) -> None:
    parsed = Parsed(page)
    policy = next(each["content"] for each in parsed.all("meta") if each.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert "unsafe" not in rules["script-src"]
    run = [text for attributes, text in parsed.scripts if "type" not in attributes] + [embed.plotly_source()]
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in run]
    assert rules["script-src"].split() == [f"'sha256-{each}'" for each in hashes]
    assert [name for _, each in parsed.elements for name in each if name.startswith("on")] == []


def test_plotly_is_in_it_whole(page: str) -> None:
    packed = next(text for attributes, text in Parsed(page).scripts if attributes.get("id") == "plotly")
    assert gzip.decompress(base64.b64decode(packed)).decode() == embed.plotly_source()


def test_the_same_analysis_gives_the_same_page(analysis: Analysis, page: str) -> None:
    assert render(analysis) == page


def test_sections_in_their_order(page: str) -> None:
    ids = [each["id"] for each in Parsed(page).all("section")]
    assert ids == ["summary", "plan", "time", "roofline", "timeline", "tables", "provenance"]
    assert Parsed(page).all("html")[0]["lang"] == "en"


def test_it_tells_headline_plan_and_provenance(page: str) -> None:
    text = Parsed(page).text.replace("\N{NO-BREAK SPACE}", " ")
    for said in (
        "GPT-2 decode, batch 1, 512 tokens, fp32, on an H200: 87 % waiting for the host. CUDA graphs: 6.8–8.1×.",
        'model.forward = torch.compile(model.forward, mode="reduce-overhead")',
        "Needs a static KV cache: shapes must not change between steps.",
        "The run waits for the host, not the GPU.",
        "570.86",
        "1980 MHz SM, 3201 MHz memory",
        "batch 1, 512 tokens",
        "3 events had no clock.",
    ):
        assert said in text


def test_the_plan_comes_first_and_adds_up(analysis: Analysis) -> None:
    graphs = analysis.recommendations[0]
    alone, both = Interval(1.1, 1.2, 1.3), Interval(7, 8.9, 10.2)
    first, then = Interval(260, 284, 309), Interval(206, 237, 300)
    steps = (
        _step("cuda-graphs", graphs.title, graphs.speedup, graphs.speedup, first),
        _step("half-precision", "Half precision", alone, both, then, 420_000_000),
    )
    change = Change((OpClassTime("gemm", 2_000_000, 600_000),))
    steps = (steps[0], replace(steps[1], explained=change))
    text = re.sub(r"(<[^>]*>|\s)+", " ", render(replace(analysis, plan=steps)))
    assert "1. CUDA graphs 6.8–8.1× 6.8–8.1× 260 µs to 309 µs –" in text
    assert "2. Half precision 1.10–1.30× 7.0–10× 206 µs to 300 µs 420 MB" in text
    assert "1.10–1.30× more predicted, 1.20× expected" in text
    assert "A step takes 600 µs instead of 1.00 ms: gemm 1.00 ms → 600 µs." in text
    assert "Others, each by itself: batching 5.1–7.8×, fused kernels 1.08–1.31×" in text


def _step(
    name: str, title: str, gain: Interval, cumulative: Interval, latency_us: Interval, memory_bytes: int | None = None
) -> PlanStep:
    return PlanStep(
        id=name,
        name=name,
        title=title,
        speedup=gain,
        cumulative=cumulative,
        latency_us=latency_us,
        memory_bytes=memory_bytes,
        explained=Change((OpClassTime("gemm", 2_000_000, 1_000_000),)),
        how_to="model.half()",
        caveats=("Digits go.",),
    )


def test_what_was_measured_stands_beside_what_was_predicted(analysis: Analysis) -> None:
    page = render(verified(analysis))
    text = re.sub(r"\s+", " ", Parsed(page).text)
    assert "CUDA graphs: 6.8–8.1×, measured 7.3×." in text
    assert "6.8–8.1× predicted, 7.4× expected 7.3× measured" in text
    assert "4.2× measured, less than predicted" in text
    assert "Not measured: No patch is known for this model." in text
    assert "620 MB → 702 MB measured" in text
    assert "outputs differ by 0.0250 %, 99.8 % of the choices agree measured" in text
    assert "cuda-graphs 6.8–8.1× 7.3× (7.1–7.6) 2.10 ms → 288 µs" in re.sub(r"(<[^>]*>\s*)+", " ", page)


def test_every_table_has_every_row(page: str, analysis: Analysis) -> None:
    rows = [each["id"] for each in Parsed(page).all("tr") if each.get("id")]
    for table in ("layers", "layer_types", "ops", "kernels", "ranges", "phases", "problems", "idle_causes"):
        expected = {f"{table}-{row}" for row in range(len(getattr(analysis, table)))}
        assert expected
        assert {each for each in rows if each and re.fullmatch(rf"{table}-\d+", each)} == expected


def test_that_all_numbers_are_modelled_is_said_once(modelled: Analysis, page: str) -> None:
    marked = render(modelled)
    assert marked.count('<p class="badge modelled"') == 1 and '<body data-kind="modelled"' in marked
    assert 'class="mark"' not in marked and '<body data-kind="modelled"' not in page


def test_projection_stands_beside_the_measurement(analysis: Analysis) -> None:
    projection = Projection(hardware.find("t4"), Interval(3000, 3400, 4100), Interval(900, 1000, 1200), "Scaled.")
    text = re.sub(r"\s+", " ", Parsed(render(replace(analysis, projection=projection))).text)
    assert "measured here NVIDIA H200 2.10 ms per step" in text
    assert "projected, modelled NVIDIA T4 3.00 ms to 4.10 ms per step" in text


def test_hostile_names_are_text(analysis: Analysis) -> None:
    nasty, plain = Parsed(render(hostile(analysis))), Parsed(render(analysis))
    assert len(nasty.scripts) == len(plain.scripts)
    assert {tag for tag, _ in nasty.elements} == {tag for tag, _ in plain.elements}
    assert [each for _, attributes in nasty.elements for each in attributes if each.startswith("on")] == []
    assert SCRIPT in nasty.text
    assert "\u202e" not in nasty.text
    titles = [each.get("title") or "" for each in nasty.all("th")]
    assert max(map(len, titles)) == 1_000
    assert max(map(len, re.split(r"\s", nasty.text.replace("x" * 9_000, "!")))) < 2_000


def test_figures_escape_what_plotly_would_read_as_tags(analysis: Analysis) -> None:
    drawn = figures(render(hostile(analysis)))
    told = json.dumps([drawn["roofline"], drawn["timeline"]])
    assert "<script" not in told
    assert "<img" not in told
    assert "&lt;img" in told


def test_the_icicle_adds_up(page: str, analysis: Analysis) -> None:
    data = figures(page)["icicle"]
    leaves = pd.DataFrame(data["leaves"])
    assert leaves["ns"].sum() == data["total"] == analysis.timeline.busy_ns
    own = leaves.groupby("layer")["ns"].sum().reindex(range(len(analysis.layers)), fill_value=0)
    assert own.tolist() == analysis.layers["self_busy_ns"].tolist()
    by_kernel = leaves.groupby("kernel")["ns"].sum().rename(lambda code: data["kernels"]["name"][code])
    assert by_kernel.to_dict() == analysis.kernels.set_index("name")["busy_ns"].to_dict()
    rows = dict(zip(data["kernels"]["name"], data["kernels"]["row"], strict=True))
    assert {name: analysis.kernels["name"][row] for name, row in rows.items()} == {name: name for name in rows}


def traces(page: str, kind: str) -> list[dict[str, Any]]:
    return figures(page)["roofline"]["kinds"][kind]


def test_the_roofline_draws_the_data_sheet_and_what_is_sustained(page: str) -> None:
    lines = [trace for trace in traces(page, "kernels") if trace["mode"] == "lines+text"]
    slopes = [trace for trace in lines if len(trace["x"]) == 3]
    assert [round(y / x, 6) for trace in slopes for x, y in zip(trace["x"], trace["y"], strict=True)] == [
        *[pytest.approx(4.8 * gpu().copy_efficiency)] * 3,
        *[4.8] * 3,
    ]
    flat = next(trace for trace in lines if any(text.startswith("fp32 67.0 TFLOP/s") for text in trace["text"]))
    assert flat["y"] == [67, 67]
    dotted = next(trace for trace in lines if len(trace["x"]) == 2 and trace["line"]["dash"] == "dot")
    assert dotted["y"] == [pytest.approx(67 * gpu().sustained["fp32"])] * 2


def gpu() -> hardware.GPU:
    return hardware.find("h200")


def test_the_roofline_places_kernels(page: str) -> None:
    memory = next(trace for trace in traces(page, "kernels") if trace.get("name") == "memory")
    # 12 x 14.1 MFLOP and 77 MFLOP in 246.2 us, over 12 x 28.3 MB and 154 MB.
    assert memory["y"] == pytest.approx([246.2e6 / 246.2e-6 / 1e12], rel=1e-3)
    assert memory["x"] == pytest.approx([246.2 / 493.6], rel=1e-3)


def test_the_page_tells_what_bounds_the_work_of_a_step_that_waits_for_the_host(analysis: Analysis) -> None:
    def waiting(table: pd.DataFrame) -> pd.DataFrame:
        return table.assign(bound="launch")

    waits = replace(analysis, kernels=waiting(analysis.kernels), layers=waiting(analysis.layers))
    page = render(waits)
    marks = [trace for trace in traces(page, "kernels") if trace["mode"] == "markers"]
    assert [trace["name"] for trace in marks] == ["memory", "latency"]
    shown = table_views(waits, 10)["kernels"]
    bound, own = ([column.label for column in shown.columns].index(label) for label in ("bound", "own bound"))
    assert {row.cells[bound].text for row in shown.rows} == {"launch"}
    assert {row.cells[own].text for row in shown.rows} == {"memory", "latency", "transfer"}


def test_the_roofline_places_layers_and_their_types(page: str, analysis: Analysis) -> None:
    for kind in ("layers", "layer_types", "ops"):
        marks = [trace for trace in traces(page, kind) if trace["mode"] == "markers"]
        rows = sorted(told[0] for trace in marks for told in trace["customdata"])
        table = getattr(analysis, kind)
        counted = table[(table["flops"] > 0) & (table["busy_ns"] > 0) & (table["share"] >= 0.0005)]
        fast = counted[counted["flops"] / counted["busy_ns"] * 1e9 > 1e-5 * 67e12]
        assert rows == fast.index.tolist()


def test_the_timeline_holds_every_piece_of_the_step(page: str, analysis: Analysis) -> None:
    lanes = figures(page)["timeline"]["steps"][0]["data"]
    assert total_ns(lanes, ("memory", "latency", "transfer")) == pytest.approx(analysis.timeline.busy_ns)
    idle = analysis.gaps.groupby("cause", observed=True)["duration_ns"].sum()
    assert idle.to_dict() == {"dispatch": 97 * 20_000, "sync": 20_000}
    for cause, time in idle.items():
        assert total_ns(lanes, (f"idle: {cause}",)) == pytest.approx(time)
    host = [trace["name"] for trace in lanes if trace["name"].startswith("host")]
    assert host == ["host: op", "host: launch", "host: sync"]


def total_ns(lanes: list[dict[str, Any]], names: tuple[str, ...]) -> float:
    chosen = [trace for trace in lanes if trace["name"] in names]
    return 1e6 * sum(
        end - start for trace in chosen for start, end in zip(trace["x"][::4], trace["x"][2::4], strict=True)
    )


def test_long_steps_are_sampled_and_say_so(analysis: Analysis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracekit.reports.figures.timelines.LIMIT", 20)
    monkeypatch.setattr("tracekit.reports.figures.icicles.LIMIT", 40)
    text = Parsed(render(analysis)).text
    assert "Drawn: the 20 longest of 99 pieces of work" in text
    assert "The 59 smallest of 99 parts" in text


def test_long_tables_say_what_they_leave_out(analysis: Analysis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracekit.reports.answer.html.ROW_LIMITS", (25,))
    assert "100 rows of less time are left out here" in Parsed(render(analysis)).text


def test_a_page_of_any_trace_is_small(analysis: Analysis) -> None:
    many = {name: repeated(getattr(analysis, name), 600) for name in ("layers", "ops", "kernels", "ranges")}
    page = render(replace(analysis, **many))
    assert len(page.encode()) <= 5_000_000
    parsed = Parsed(page)
    assert parsed.text.count("rows of less time are left out here") == 4
    drawn = [each["id"] for each in parsed.all("tr") if (each.get("id") or "").startswith("kernels-")]
    assert len(drawn) in (500, 150)


def repeated(table: pd.DataFrame, rows: int) -> pd.DataFrame:
    """Return the table with long names and this many rows."""
    column = "path" if "path" in table else "name"
    many = table.iloc[np.arange(rows) % len(table)].reset_index(drop=True)
    return many.assign(**{column: [f"{row}{LONG[:2_000]}" for row in range(rows)]})


def test_an_empty_analysis_makes_a_page(analysis: Analysis) -> None:
    tables = ("work", "layers", "layer_types", "phases", "ops", "kernels", "problems", "ranges", "gaps", "host_spans")
    line = replace(analysis.timeline, wall_ns=0, busy_ns=0, idle_ns=0, steps=analysis.timeline.steps.iloc[:0])
    bare = replace(
        analysis,
        **{name: getattr(analysis, name).iloc[:0] for name in tables},
        source=replace(analysis.source, gpu=None, capture=None),
        timeline=line,
        idle_causes=analysis.idle_causes.iloc[:0],
        coverage=Coverage(1.0, 1.0, 1.0),
        recommendations=(),
        considered=(),
    )
    assert "Nothing: everything in the trace was read and is counted." in Parsed(render(bare)).text


def tokens(scheme: int) -> dict[str, tuple[float, ...]]:
    colours = re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", embed.asset("tokens.css"))
    return {each[0]: tuple(int(each[1 + scheme][at : at + 2], 16) / 255 for at in (1, 3, 5)) for each in colours}


def contrast(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    """Return the contrast by WCAG 2.2: (L1 + 0.05) / (L2 + 0.05), with relative luminances."""
    linear = [[c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour] for colour in (one, other)]
    dark, light = sorted(0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in linear)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_colours_have_the_contrast_that_wcag_aa_asks_for(scheme: int) -> None:
    colours = tokens(scheme)
    for text in ("ink", "soft", "modelled", "transfer", "compute", "memory"):
        assert contrast(colours[text], colours["paper"]) >= 4.5, text
    assert contrast(colours["soft"], colours["raised"]) >= 4.5
    assert contrast(colours["ink"], colours["found"]) >= 4.5
    drawn = [name for name in colours if name.startswith(("gap-", "host-"))] + ["edge"]
    for name in drawn:
        assert contrast(colours[name], colours["paper"]) >= 3, name
    for bound in ("compute", "memory", "launch", "latency", "transfer", "unknown"):
        assert contrast(colours[bound], colours["paper"]) >= 3, bound
        assert contrast(colours[f"on-{bound}"], colours[bound]) >= 4.5, bound
        for part in (0.24, 0.46):
            tint = tuple(
                part * one + (1 - part) * other for one, other in zip(colours[bound], colours["paper"], strict=True)
            )
            assert contrast(colours["ink"], tint) >= 4.5, (bound, part)


def test_steps_of_the_plan_measured_together(analysis: Analysis) -> None:
    graphs = analysis.recommendations[0]
    gain, latency = Interval(1.1, 1.2, 1.3), Interval(206, 237, 300)
    steps = (
        _step("cuda-graphs", graphs.title, graphs.speedup, graphs.speedup, latency),
        _step("half-precision", "Half precision", gain, Interval(7, 8.9, 10.2), latency),
    )
    of_run = verified(analysis)
    assert of_run.verified is not None
    both = Verified("half-precision+cuda-graphs", "Both", Interval(7, 8.9, 10.2), Interval(2.5, 2.61, 2.7))
    measured = replace(of_run, plan=steps, verified=replace(of_run.verified, results=(*of_run.verified.results, both)))
    text = re.sub(r"(<[^>]*>|\s)+", " ", render(measured))
    assert "2. Half precision 1.10–1.30× 7.0–10× 2.61× 206 µs" in text
    assert "2.61× measured with all before it, less than predicted" in text
    order = [*measured_gains(measured)]
    assert order == ["cuda-graphs", "batching", "half-precision+cuda-graphs", "fused-kernels"]


def test_what_was_measured_to_fail_comes_last_everywhere(analysis: Analysis) -> None:
    of_run = verified(analysis)
    assert of_run.verified is not None
    graphs, *others = of_run.verified.results
    failed = replace(graphs, measured=None, error="CUDA error")
    gain, latency = graphs.predicted, Interval(206, 237, 300)
    assert gain is not None
    steps = tuple(_step(name, name, gain, gain, latency) for name in ("batching", graphs.id))
    after = reordered_by_measurements(
        replace(of_run, plan=steps, verified=replace(of_run.verified, results=(failed, *others)))
    )
    assert "batching: 6.8–8.1×, measured 4.2×." in headline(after)
    assert [step.name for step in after.plan] == ["batching"]
    assert [advice.id for advice in after.recommendations] == ["batching", graphs.id, "fused-kernels"]
    assert cards(after)[0][0].advice.id == json.loads(to_json(after))["headline"]["first"] == "batching"


def test_the_picture_of_the_plan_has_a_bar_for_each_move_that_ends_where_the_table_says() -> None:
    analysis = tracekit.analyze(Path(__file__).parents[2] / "examples" / "traces" / "h200_gpt2_decode.json.gz")
    drawn, steps = bars(analysis), planned(analysis)
    assert [bar.title for bar in drawn[1:]] == [step.title for step in steps if step.cumulative]
    assert dict(drawn[0].by_bound) == {name: share for name, share in analysis.bound.ranked() if share}
    for bar, step in zip(drawn[1:], steps, strict=False):
        assert sum(bar.by_bound.values()) == pytest.approx(1)
        assert bar.latency_us == step.latency_us and step.explained
        assert sum(each.after_ns for each in step.explained.by_op_class) / 1e3 == pytest.approx(
            bar.latency_us.expected, rel=0.01
        )
    assert drawn[1].by_bound["launch"] < drawn[0].by_bound["launch"]
    assert render(analysis).count('class="move"') == len(drawn)
