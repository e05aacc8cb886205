"""The serving twin: passes, the simulated engine, streams, answers, and the command."""

import json
import math
from dataclasses import replace

import pandas as pd
import pytest
from click.testing import CliRunner

from benchmarks.serving.command import POINTS, residuals, scores
from tracekit.analyzers.core import InputError
from tracekit.analyzers.cost import hardware
from tracekit.analyzers.serving import (
    Chunk,
    Deployment,
    Format,
    PassTimes,
    Question,
    Request,
    Stream,
    all_engines,
    measures,
    model_of,
    simulate,
    stream,
)
from tracekit.cli import main
from tracekit.reports.serving import answer
from tracekit.serving import serve_plan, served_model

SMALL = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 8,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
}


def deployment(engine="vllm", config=SMALL, gpu="h100", dtype="bf16", tensor=1, **changes):
    found = replace(all_engines()[engine], **changes)
    return Deployment(model_of(config, "small"), hardware.find(gpu), found, Format(dtype), tensor)


def at_once(*sizes):
    return Stream(tuple(Request(0.0, prompt, output) for prompt, output in sizes), at_once=True)


def test_numbers_of_architectures_are_those_that_publishers_state():
    stated = {"deepseek-ai/DeepSeek-R1": 671, "gpt-oss-120b": 117, "Qwen/Qwen3-235B-A22B-FP8": 235, "minimax-m2": 229}
    for name, billions in stated.items():
        assert served_model(name).parameters / 1e9 == pytest.approx(billions, rel=0.01)
    assert served_model("meta-llama/Llama-3.1-70B-Instruct").active_parameters / 1e9 == pytest.approx(70, rel=0.02)
    assert served_model("deepseek-v3").active_parameters / 1e9 == pytest.approx(37, rel=0.02)


def test_what_a_token_adds_to_the_cache():
    grouped = Deployment(served_model("qwen3-32b"), hardware.find("h100"), all_engines()["vllm"], Format("bf16"))
    assert grouped.cache_bytes == 64 * 2 * 8 * 128 * 2
    latent = replace(grouped, model=served_model("deepseek-v3"), tensor=8)
    assert latent.cache_bytes == 61 * (512 + 64) * 2  # each GPU has the whole latent
    assert replace(grouped, tensor=16).cache_bytes == grouped.cache_bytes / 8  # no more parts than heads
    windowed = replace(grouped, model=served_model("gpt-oss-120b"))
    assert windowed.cache_bytes == 18 * 2 * 8 * 64 * 2 and windowed.request_bytes == 128 * windowed.cache_bytes


def test_a_pass_takes_longer_with_more_to_do():
    times = PassTimes(replace(deployment(), model=served_model("llama-3.1-8b")))
    assert times.seconds(8, 100) < times.seconds(64, 100) < times.seconds(64, 2000)
    assert times.seconds(8, 100) < times.seconds(8, 100, [Chunk(512, 0)]) < times.seconds(8, 100, [Chunk(512, 2000)])
    few = PassTimes(replace(times.of, model=served_model("qwen3-235b-a22b"), tensor=8))
    assert 20 < few.split(64, 10)["experts"] / few.split(1, 10)["experts"] * 8 < 128


def test_a_pass_reads_the_weights_at_least_once():
    of = replace(deployment(gpu="h200", dtype="fp8"), model=served_model("llama-3.1-8b"))
    seconds = PassTimes(of).seconds(1, 100)
    assert of.weight_bytes / 4.8e12 < seconds < 3 * of.weight_bytes / 4.8e12


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
@pytest.mark.parametrize("users", [1, 5, 9, 33, 200])
def test_graphs_never_lower_the_rate(engine, users):
    of = replace(deployment(engine), model=served_model("llama-3.1-8b"))
    plain = replace(of, engine=replace(of.engine, graphs=()))
    requests = stream(f"closed:{users},256,64")
    with_graphs, without = (measures(simulate(PassTimes(one), requests), one, requests, {}) for one in (of, plain))
    assert with_graphs.tokens_per_s.expected >= 0.999 * without.tokens_per_s.expected


def test_a_request_alone_gets_a_prefill_and_then_a_token_a_pass():
    times = PassTimes(deployment())
    run = simulate(times, at_once((100, 4)))
    first = times.seconds(0, 0, [Chunk(100, 0)])
    assert run.served[0].first_s == pytest.approx(first) and run.served[0].made == 4
    assert run.served[0].last_s == pytest.approx(first + 3 * times.seconds(1, 101), rel=1e-6)


def test_every_request_gets_all_its_tokens_in_each_engine():
    requests = at_once((100, 7), (3000, 1), (50, 300), (900, 20))
    for engine in all_engines():
        run = simulate(PassTimes(deployment(engine)), requests)
        assert [each.made for each in run.served] == [7, 1, 300, 20]
        assert all(0 < each.first_s <= each.last_s for each in run.served)


def test_a_cache_too_small_puts_requests_off_and_still_serves_all():
    of = deployment(memory=0.0)
    held = of.weight_bytes + of.engine.number("workspace_gb") * 1e9 + 130 * of.cache_bytes
    tight = replace(of, engine=replace(of.engine, memory=held / (0.995 * 80 * 2**30)))
    assert tight.tokens_that_fit == pytest.approx(130, abs=1)
    run = simulate(PassTimes(tight), at_once(*[(40, 60)] * 3))
    assert run.put_off > 0 and all(each.made == 60 for each in run.served)
    assert max(each.used for each in run.moments) <= 1.0
    assert simulate(PassTimes(tight), at_once((1000, 60))).refused == 1


def test_paging_and_joining_in_flight_serve_more():
    requests = at_once(*[(200, 20 + 60 * (number % 9)) for number in range(80)])
    of = deployment(most_requests=16)
    rate = {}
    for name, changes in {"static": {"in_flight": False, "mixed": False}, "in flight": {}}.items():
        changed = replace(of, engine=replace(of.engine, **changes))
        rate[name] = measures(simulate(PassTimes(changed), requests), changed, requests, {}).tokens_per_s.expected
    assert rate["in flight"] > 1.2 * rate["static"]


def test_prefixes_that_are_cached_are_not_processed_again():
    of, requests = deployment(), at_once(*[(3000, 10)] * 16)
    plain, shared = (simulate(PassTimes(replace(of, prefix_hit=hit)), requests) for hit in (0.0, 0.9))
    assert max(e.first_s for e in shared.served) < 0.5 * max(e.first_s for e in plain.served)


def test_accepted_drafts_shorten_the_time_between_tokens():
    of = replace(deployment(), model=served_model("llama-3.1-8b"))
    drafting = replace(of, drafted=3, acceptance=0.8)
    assert drafting.tokens_of_a_pass == pytest.approx(1 + 0.8 + 0.64 + 0.512)
    assert PassTimes(drafting).seconds(1, 500) < 0.6 * PassTimes(of).seconds(1, 500)


def test_streams_are_read_and_what_is_none_is_refused(tmp_path):
    path = tmp_path / "requests.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n2.5,10,3\n0.5,20,4\n")
    assert stream(str(path)).requests == (Request(0.5, 20, 4), Request(2.5, 10, 3))
    path.write_text("num_prefill_tokens,num_decode_tokens,output_tokens\n10,99,3\n")
    assert stream(f"batch:{path}").requests == (Request(0.0, 10, 3),)
    closed = stream("closed:8,1000,100")
    assert closed.users == 8 and all(800 <= each.prompt_tokens <= 1000 for each in closed.requests)
    assert stream("poisson:4,100,10", 1) == stream("poisson:4,100,10", 1) != stream("poisson:4,100,10", 2)
    for wrong in ("closed:0,1,1", "closed:1.5,9,9", "closed:4", "poisson:0,1,1", "poisson:nan,1,1", str(tmp_path)):
        with pytest.raises(InputError):
            stream(wrong)
    for text in ("arrival_s,prompt_tokens,output_tokens\n0,0,3\n", "a,b\n1,2\n", ""):
        path.write_text(text)
        with pytest.raises(InputError):
            stream(str(path))


def test_what_does_not_fit_is_refused_with_the_nearest_that_does():
    with pytest.raises(InputError, match=r"does not fit .* nearest that fits is --tp 1 --dtype fp8"):
        serve_plan(Question("llama-3.1-70b", "h200", "closed:1,64,8"))
    with pytest.raises(InputError, match="positions"):
        serve_plan(Question("llama-2-7b", "h200", "closed:1,5000,8"))
    with pytest.raises(InputError, match="divided"):
        serve_plan(Question("qwen3-32b", "h200", "closed:1,64,8", tensor=2, expert=3))


def test_limits_that_cannot_be_kept_are_answered_with_the_nearest():
    plan = serve_plan(Question("llama-3.1-8b", "h100", "closed:64,512,64", slo={"tpot": 1e-5}))
    assert plan.asked.found.kept == 0 and "No setting here keeps them" in answer(plan)
    easy = serve_plan(Question("llama-3.1-8b", "h100", "closed:4,512,64", slo={"ttft": 9, "tpot": 1}))
    assert easy.asked.found.kept == 1 and "100 % of the requests keep the limits" in answer(easy)


def test_the_command_answers_in_json_and_files(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(SMALL))
    requests = tmp_path / "batch.csv"
    requests.write_text("prompt_tokens,output_tokens\n200,8\n100,8\n")
    words = [
        "serve-plan",
        "--model",
        str(tmp_path / "model"),
        "--gpu",
        "h100_sxm",
        "--engine",
        "sglang",
        "--price",
        "2",
    ]
    words += ["--requests", f"batch:{requests}", "--search"]
    words += ["--format", "json", "-o", str(tmp_path / "out")]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    for name in ("ttft_ms", "tpot_ms", "tokens_per_s", "prefill_ms"):
        value = told["rows"][0][name]
        assert 0 < value["low"] < value["expected"] < value["high"] < math.inf
    assert len(told["ladder"]) == 5 and any(each["best"] for each in told["search"])
    page = (tmp_path / "out" / "serve_plan.html").read_text()
    assert told["answer"].split(",")[0] in page and "<circle" in page
    assert (tmp_path / "out" / "serve_plan.csv").read_text().startswith("setting,gpus")
    assert json.loads((tmp_path / "out" / "serve_plan.json").read_text()) == told


def test_published_points_are_near_what_is_simulated():
    points = pd.read_csv(POINTS).sample(60, random_state=1).reset_index(drop=True)
    first, token, *inside = scores(points, residuals(points))
    assert first < 0.35 and token < 0.16 and min(inside) > 0.75


@pytest.mark.parametrize("text", ["[]", "{", '{"hidden_size": 8}', '{"hidden_size": 1e99}'])
def test_a_config_that_is_none_is_refused(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(InputError):
        served_model(str(tmp_path))
