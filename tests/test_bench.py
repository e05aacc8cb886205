"""tracekit bench on the CPU: configurations, rows, continuing a bench, and the largest batch."""

import csv

import pytest
from click.testing import CliRunner
from same_process import SameProcess
from tiny_models import write_model

from tracekit.analyzers.core import InputError, UnknownNameError
from tracekit.capture import complete
from tracekit.cli import main
from tracekit.measure import Row, bench_worker, benching, configuration, from_csv, side_by_side
from tracekit.measure.bench_rows import to_csv
from tracekit.measure.bench_worker import Request, largest_batch
from tracekit.measure.quality import Evaluation, sample
from tracekit.measure.worker import Failure
from tracekit.reports.document import render
from tracekit.reports.measure import bench_document
from tracekit.run import Settings

START = Settings(model="gpt2", dtype="fp32", attention="eager")


def test_configurations_are_types_attention_and_optimizations():
    parsed = configuration("fp16+flash+graphs+int8")
    assert (parsed.dtype, parsed.attention, parsed.optimizations) == ("fp16", "flash", "cuda-graphs+int8-weight-only")
    assert configuration("base").change(START) == ""


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("tf32", "tf32"),
        ("fp16+compile", "half-precision:fp16+compile"),
        ("bf16+sdpa", "half-precision:bf16+sdpa"),
        ("eager", ""),
        ("fp16+flash", "half-precision:fp16+sdpa:flash"),
        ("qlora", None),
        ("qlora:awq", None),
        ("awq", "awq"),
        ("fp16+smoothquant", "half-precision:fp16+smoothquant"),
    ],
)
def test_what_is_predicted_of_a_configuration(name, change):
    assert configuration(name).change(START) == change


def test_names_that_are_not_known_or_exclude_each_other():
    with pytest.raises(UnknownNameError, match="compil"):
        configuration("fp16+compil")
    with pytest.raises(InputError, match="more than one"):
        configuration("fp16+fp32")
    with pytest.raises(InputError, match="cannot be combined"):
        configuration("int8+nf4")


@pytest.mark.parametrize("most", [1, 7, 100, 5000])
def test_the_largest_batch_is_found_in_few_runs(most):
    capacity, runs = 1_000 + 10 * most, []

    def probe(batch: int) -> int | None:
        runs.append(batch)
        peak = 1_000 + 10 * batch
        return peak if peak <= capacity else None

    largest = largest_batch(probe, capacity, 1)
    assert 0.94 * most - 1 <= largest <= most
    assert len(runs) <= 11


@pytest.mark.parametrize("likely", [100, 160, 240, 600])
def test_a_predicted_batch_is_where_the_search_begins(likely):
    """GPT-2 in training: at a batch of 1 the optimizer's peak is the larger one. 173 fit."""
    runs = []

    def probe(batch: int) -> int | None:
        runs.append(batch)
        peak = max(2_570, 1_493 + 805 * batch)
        return peak if peak <= 141_000 else None

    assert 168 <= largest_batch(probe, 141_000, 1, likely) <= 173
    assert len(runs) == 3


def test_a_peak_that_does_not_grow_at_first_does_not_send_the_search_far():
    """GPT-2 with checkpointing: batches 1 to 4 hold what the optimizer does. Without a prediction."""
    runs = []

    def probe(batch: int) -> int | None:
        runs.append(batch)
        peak = max(2_570, 1_500 + 260 * batch)
        return peak if peak <= 140_000 else None

    assert 516 <= largest_batch(probe, 140_000, 1) <= 532
    assert max(runs) <= 532 and len(runs) <= 6


def test_a_batch_that_never_fits():
    assert largest_batch(lambda _: None, 10, 1) is None


def test_training_is_tried_with_the_moments_of_its_optimizer(tmp_path, monkeypatch):
    write_model(tmp_path, "llama")
    asked = Settings(model=str(tmp_path), workload="train", device="cpu", dtype="fp32", seq_len=8)
    base, checkpointed = configuration("base"), configuration("checkpointing")
    request = Request(row(), complete(asked), base, checkpointed, Evaluation("", text=" "))
    tried = []

    def ready(subject, optimizer):
        tried.append((subject.settings.batch_size, len(optimizer.state), optimizer))
        return side_by_side.ready(subject, optimizer)

    monkeypatch.setattr(bench_worker, "ready", ready)
    peaks = [bench_worker.peak_bytes(request, batch) for batch in (2, 4)]
    assert peaks == [0, 0]  # of a GPU, of which there is none
    (two, moments, optimizer), (four, as_many, same) = tried
    assert (two, four) == (2, 4) and moments == as_many > 0 and optimizer is same
    bench_worker.forget()


def row(**changes) -> Row:
    asked = {"model": "gpt2", "workload": "decode", "batch_size": 1, "seq_len": 16, "new_tokens": 0}
    return Row(**{**asked, "weights": "random", "config": "fp32", "first": "fp32", **changes})


def test_rows_are_read_as_they_were_written(tmp_path):
    rows = [row(latency_us=12.5, agreement=1.0, sm_clock_mhz=1980), row(config="nf4", error="No, not <here>.")]
    (tmp_path / "bench.csv").write_text(to_csv(rows))
    assert from_csv(tmp_path / "bench.csv") == rows
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError):
        from_csv(tmp_path / "other.csv")


def test_reports_hold_every_row_and_no_markup_of_names():
    times = {"latency_us": 1e3, "latency_p10_us": 9e2, "latency_p90_us": 1.1e3, "items_per_s": 1e3, "unit": "tokens"}
    first = row(**times, speedup=1.0, peak_memory_bytes=10**9)
    fast = row(**times, config="fp16<b>", speedup=2.0, predicted=1.8, predicted_low=1.5, predicted_high=2.2)
    rows = [vars(each) for each in (first, fast, row(config="nf4", error="Not here."))]
    text, page = (render(bench_document(rows), form, width=120) for form in ("text", "html"))
    assert "1.5–2.2×" in text and "2.0×" in text and "nf4 (gpt2): not measured. Not here." in text
    assert "fp16&lt;b&gt;" in page and "<b>" not in page
    assert page.count("<figure>") == 2


@pytest.mark.usefixtures("same_process")
def test_a_bench_measures_what_is_missing_and_survives_what_fails(tmp_path):
    model = write_model(tmp_path / "llama", "llama")
    command = ["bench", "--model", str(model), "--seq-len", "8", "--device", "cpu", "-o", str(tmp_path / "out")]
    command += ["--panels"]
    done = CliRunner().invoke(main, [*command, "--dtype", "fp32,bf16", "--apply", "none,graphs"])
    assert done.exit_code == 0, done.output
    with (tmp_path / "out" / "bench.csv").open(newline="") as file:
        first, graphs, half, both = csv.DictReader(file)
    assert float(first["latency_us"]) > 0 and first["speedup"] == "1"
    assert [each["config"] for each in (first, graphs, half, both)] == ["fp32", "fp32+graphs", "bf16", "bf16+graphs"]
    assert "CUDA" in graphs["error"] and not graphs["latency_us"]
    assert float(half["agreement"]) >= 0.9 and 0 < float(half["relative_difference"]) < 0.05
    assert (tmp_path / "out" / "panels.svg").read_text().count('class="title"') == 2
    again = CliRunner().invoke(main, [*command, "--dtype", "fp32,bf16", "--apply", "none"])
    assert "measuring" not in again.stderr
    assert (tmp_path / "out" / "bench.html").is_file()


@pytest.mark.usefixtures("same_process")
def test_a_bench_of_which_nothing_could_be_measured_failed(tmp_path):
    model = write_model(tmp_path / "model", "llama")
    command = ["bench", "--model", str(model), "--device", "cpu", "--seq-len", "8", "-o", str(tmp_path / "bench")]
    done = CliRunner().invoke(main, [*command, "--apply", "graphs"])
    assert done.exit_code == 1 and "Nothing was measured." in done.stderr
    assert "CUDA device" in done.stdout and "CUDA device" in (tmp_path / "bench" / "bench.csv").read_text()


def test_attention_is_as_asked_for_and_not_as_in_the_first_configuration(tmp_path, monkeypatch):
    asked = []

    class RecordingWorker(SameProcess):
        def call(self, function, *arguments):
            asked.extend(each.configuration for each in arguments if isinstance(each, Request))
            return Failure("Nothing is measured.")

    monkeypatch.setattr(benching, "Worker", RecordingWorker)
    asked_rows = benching.BenchGrid(
        [str(write_model(tmp_path / "gpt2", "gpt2"))],
        ["fp32+eager", "fp32", "flash"],
        [1],
        [8],
        Settings(model="", device="cpu"),
    )
    assert all(row.error for row in benching.bench(asked_rows, tmp_path))
    assert [each.attention for each in asked] == ["eager", "sdpa", "flash"]


def test_the_sample_is_text():
    assert sample().startswith("Alice was beginning") and len(sample()) > 2_000


def test_labels_of_close_points_stand_apart():
    from tracekit.reports.measure.bench_panels import _Box, _free

    points = [(100.0, 12.0), (104.0, 14.0), (101.0, 15.0)]
    taken = [_Box(x - 4, y, 8) for x, y in points]
    for x, y in points:
        taken.append(_free(x + 7, y, 30.0, taken))
    labels = taken[len(points) :]
    assert all(label.y > 6 for label in labels)
    assert not any(a.meets(b) for index, a in enumerate(labels) for b in labels[:index])
