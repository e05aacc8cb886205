"""The simulated engine: what a request gets, alone and among others, with too small a cache, chunked or not."""

import csv
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner
from tiny_models import write_model

from tracekit.analyzers.core import InputError
from tracekit.analyzers.serving import PAGE, Engine, Request, StepTimes, requests, simulate, summary
from tracekit.cli import main

TIMES = StepTimes({(1, 64): 0.010, (8, 64): 0.017, (1, 512): 0.010, (8, 512): 0.017}, {1: 0.010, 101: 0.110})


def engine(**changes):
    return Engine(**{"times": TIMES, "pages": 1000, **changes})


def test_a_request_alone_gets_a_prefill_and_then_a_token_a_pass():
    run = simulate([Request(1.0, 101, 4)], engine())
    assert run.served[0].tokens == pytest.approx([1.110, 1.120, 1.130, 1.140])
    told = summary("none", run, engine(), PAGE)
    assert told["ttft_p50_s"] == pytest.approx(0.110) and told["tbt_p99_s"] == pytest.approx(0.010)
    assert told["tokens_per_s"] == pytest.approx(4 / 0.140)
    assert told["kv_max"] == pytest.approx(7 / 1000)


def test_requests_in_flight_share_a_pass():
    run = simulate([Request(0.0, 1, 100) for _ in range(8)], engine())
    together = summary("none", run, engine(), PAGE)
    assert together["running_max"] == 8 and together["tbt_p50_s"] == pytest.approx(0.017)


def test_a_prompt_holds_up_those_that_decode_unless_it_is_chunked():
    stream = [Request(0.0, 1, 60), Request(0.05, 1001, 2)]
    whole = summary("none", simulate(stream, engine()), engine(), PAGE)
    chunks = engine(chunked=True, most_tokens=64)
    split = summary("chunked", simulate(stream, chunks), chunks, PAGE)
    assert whole["tbt_p99_s"] < 1.2 and split["tbt_p99_s"] < 0.09
    assert max(np.diff(simulate(stream, engine()).served[0].tokens)) == pytest.approx(1.010 + 0.010, rel=0.02)


def test_a_cache_too_small_puts_requests_off_and_still_serves_all():
    tight = engine(pages=12)
    run = simulate([Request(0.0, 40, 60) for _ in range(3)], tight)
    assert run.put_off > 0 and all(len(each.tokens) == 60 for each in run.served)
    assert max(each.used_pages for each in run.moments) <= 12
    assert simulate([Request(0.0, 1000, 60)], tight).refused == 1


def test_more_requests_a_second_wait_longer():
    times = [summary("", simulate(requests(f"poisson:{rate},100,20"), engine()), engine(), PAGE) for rate in (1, 50)]
    assert times[0]["ttft_p99_s"] < times[1]["ttft_p99_s"]


def test_times_lie_between_the_points():
    assert TIMES.decode(1, 100) == pytest.approx(0.010) and TIMES.decode(4, 64) == pytest.approx(0.013)
    assert TIMES.decode(15, 64) == pytest.approx(0.024) and TIMES.prefill(51) == pytest.approx(0.060)
    assert TIMES.mixed(1, 64, 101) == pytest.approx(0.110)
    assert replace(TIMES, overhead_s=0.005).mixed(1, 64, 101) == pytest.approx(0.115)


def test_requests_are_read_and_what_is_none_is_refused(tmp_path):
    path = tmp_path / "requests.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n2.5,10,3\n0.5,20,4\n")
    assert requests(str(path)) == [Request(0.5, 20, 4), Request(2.5, 10, 3)]
    assert len(requests("poisson:4,100,10")) == 200
    for wrong in ("poisson:4,100", "poisson:0,1,1", str(tmp_path / "none.csv")):
        with pytest.raises(InputError):
            requests(wrong)
    path.write_text("arrival_s,prompt_tokens,output_tokens\n0,0,3\n")
    with pytest.raises(InputError, match="served"):
        requests(str(path))


def test_a_plan_of_a_tiny_model(tmp_path):
    stream = tmp_path / "requests.csv"
    stream.write_text("arrival_s,prompt_tokens,output_tokens\n0,20,6\n0.001,30,6\n")
    words = ["serve-plan", "--model", str(write_model(tmp_path / "llama", "llama")), "--gpu", "h100"]
    words += ["--requests", str(stream), "--apply", "none,cuda-graphs", "-o", str(tmp_path / "out")]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    with (tmp_path / "out" / "serve_plan.csv").open(newline="") as file:
        plain, graphs = csv.DictReader(file)
    assert float(graphs["tbt_p50_s"]) < float(plain["tbt_p50_s"])
    assert plain["refused"] == "0" and int(plain["running_max"]) == 2
    assert (tmp_path / "out" / "serve_plan.html").read_text().count("<figure>") == 2
