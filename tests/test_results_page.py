"""The results page shows every row of the results of verify and bench, and nothing stale."""

import gzip
import json
import re
from pathlib import Path

import pytest

from benchmarks.accuracy import published, published_page
from benchmarks.results import benched, page, several_gpus, trained, verified
from tracekit.measure import Row

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "results.md").read_text()
STORED = ROOT / "benchmarks" / "data" / "h200_verify.json.gz"


def test_the_published_page_is_that_of_the_committed_rows():
    text = published_page.text()
    assert text == (ROOT / "docs" / "published.md").read_text(encoding="utf-8")
    head = next(line for line in text.splitlines() if line.startswith("| part"))
    assert [cell.split(",")[0].strip() for cell in head.strip("|").split("|")[2:]] == [
        "published",
        "MODELLED",
        "MODELLED",
        "measured",
        "measured",
    ]
    assert "| GPT-2, T4, compile | 1.45× | 1.64× (1.38 to 1.96) | 1.87× |" in text


def test_both_views_of_a_forward_pass_are_those_of_todays_model():
    pytest.importorskip("transformers")
    stored = {row["run"]: row for row in published_page.rows() if row["kind"] == "part"}
    for name, shares in published.parts().items():
        asked = [float(stored[name][view]) for view in ("modelled", "kernels")]
        assert [100 * share for share in shares] == pytest.approx(asked, abs=1.0), name


@pytest.mark.parametrize("each", sorted((ROOT / "docs").glob("*.md")), ids=lambda each: each.stem)
def test_rows_of_tables_are_whole(each):
    text = re.sub(r"^```.*?^```", "", each.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert [line for line in text.splitlines() if line.startswith("| ") and not line.endswith("|")] == []


def test_the_page_holds_what_was_verified():
    chapter = verified.chapter()
    assert chapter in PAGE
    stored = json.loads(gzip.decompress(STORED.read_bytes()))["mistral-7b-decode"]["results"]
    decode = chapter.partition("### A step")[0]
    for result in (each for each in stored if each["measured"]):
        (row,) = re.findall(rf"^\| {re.escape(result['id'])} \|(.*)\|$", decode, re.MULTILINE)
        speedup = re.search(r"[\d.]+", row.split("|")[-1])
        assert speedup and float(speedup[0]) == pytest.approx(result["measured"]["expected"], rel=0.05)


def test_the_page_holds_the_sweep():
    chapter = benched.sweep()
    assert chapter in PAGE
    assert "| 8 | 128 | half-precision | 5.84 ms | 6.96 ms | 1.50 (1.07 to 2.48) | 1.28 |" in chapter


def test_the_page_holds_the_trained_model():
    chapter = trained.chapter()
    assert chapter in PAGE
    assert "| nf4 | 0.50–0.73× | 0.57× |" in chapter and "token frequencies alone give" in " ".join(chapter.split())


def test_the_page_holds_the_jobs_of_several_gpus():
    chapter = several_gpus.chapter()
    assert chapter in PAGE
    assert "fifth, 2 H200: 15 of 16 blind, 16 of 16 seen; sixth, 2 H200: 3 of 4 blind, 3 of 4 seen." in chapter
    assert "| gpt2-8x1024 | 2 | 0.65 |" not in chapter, "its run on one GPU was another training"


def test_what_could_not_be_applied_says_why_and_a_loss_is_named():
    chapter = verified.chapter()
    assert "- tf32 (Llama-3.2-1B, Mistral-7B): It is for matrix products in fp32" in chapter
    assert "LLM.int8 on GPT-2 was predicted at 0.28–0.56×" in " ".join(chapter.split())


def row(config: str, speedup: float, workload: str = "decode") -> Row:
    run = {"model": "gpt2", "workload": workload, "batch_size": 1, "seq_len": 100, "new_tokens": 0, "weights": "random"}
    return Row(**run, config=config, first="fp32", latency_us=1e3, items_per_s=1e3, unit="tokens", speedup=speedup)


def test_published_rates_stand_beside_ours_whatever_the_order_of_a_name():
    there = {"T4": {("gpt2", "fp32"): 50.0, ("gpt2", "fp16+compile"): 100.0}, "A100": {("gpt2", "fp32"): 80.0}}
    table = benched.bench([row("fp32", 1.0), row("compile+fp16", 3.0), row("nf4", 0.5)], there)
    assert "| fp32 | 1.00× | 50/s (T4); 80/s (A100) | 1.00 ms | 1,000 |" in table
    assert "| compile+fp16 | 3.0× | 100/s, 2.0× (T4) |" in table
    assert "| nf4 | 0.50× | – |" in table


def test_published_rates_of_generated_tokens_are_not_held_against_training():
    table = benched.bench([row("fp32", 1.0, "train")], {"T4": {("gpt2", "fp32"): 50.0}})
    assert "50/s" not in table


def test_the_page_is_what_its_generator_writes():
    """An edit of the page itself would be lost with the next results."""
    written = page.text()
    differ = next((pair for pair in zip(PAGE.splitlines(), written.splitlines(), strict=False) if len({*pair}) > 1), "")
    assert written == PAGE, f"run python -m benchmarks results.page; the first line that differs: {differ}"


def test_the_page_holds_every_bench():
    for path in sorted((ROOT / "benchmarks" / "data").glob("h200_bench_*.csv")):
        assert benched.of_file(path) in PAGE


def test_the_jobs_of_several_gpus_are_counted_with_those_that_were_not_scored():
    counted = several_gpus.totals(several_gpus.jobs())
    assert counted == {"scored": (48, 75), "faults": (16, 27), "healthy": (15, 21), "scalings": (8, 15)}
