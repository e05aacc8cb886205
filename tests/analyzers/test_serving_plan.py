"""The serving twin: passes, the simulated engine, streams, answers, and the command."""

import json
import math
from dataclasses import replace
from time import process_time

import numpy as np
import pytest
from click.testing import CliRunner
from small_decoder import SMALL

from benchmarks.serving.command import points_of, predict, record, residuals, scores
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
    settings,
    simulate,
    stream,
)
from tracekit.cli import main
from tracekit.reports.serving import answer
from tracekit.serving import serve_plan, served_model


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


def test_what_a_description_leaves_to_its_class_is_known_and_encoders_are_refused():
    for name, billions in {"mixtral-8x7b": 46.7, "gemma-2-9b": 9.24, "falcon-7b": 6.92, "phi-2": 2.78}.items():
        assert served_model(name).parameters / 1e9 == pytest.approx(billions, rel=0.01)
    assert served_model("falcon-7b").layers[0].attention.kv_heads == 1
    for name in ("bert-base-uncased", "t5-base", "vit-base-patch16-224"):
        with pytest.raises(InputError, match="not served token by token"):
            served_model(name)


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


def test_launches_bound_prompts_of_unusual_layers_and_not_long_ones():
    few, none = PassTimes(deployment("trtllm")), {"routed_launches": 0, "unfused_launches": 0}
    times = {}
    for name in ("llama-3.1-8b", "deepseek-v3"):
        of = replace(few.of, model=served_model(name), tensor=8)
        without = replace(of, engine=of.engine.with_numbers(none))
        times[name] = [
            PassTimes(of).seconds(0, 0, [Chunk(tokens, 0)]) / PassTimes(without).seconds(0, 0, [Chunk(tokens, 0)])
            for tokens in (256, 8192)
        ]
    assert times["llama-3.1-8b"] == [1, 1]
    assert times["deepseek-v3"][0] > 1.2 and times["deepseek-v3"][1] < 1.05


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


def test_a_request_keeps_its_accepted_drafts_while_a_prompt_is_processed():
    of = replace(deployment(), model=served_model("llama-3.1-8b"))
    drafting = replace(of, drafted=3, acceptance=0.8)
    requests = Stream((Request(0.0, 50, 40), *(Request(0.001, 8000, 2) for _ in range(20))))
    alone, with_drafts = (simulate(PassTimes(one), requests).served[0] for one in (of, drafting))
    assert with_drafts.made == 40 and with_drafts.last_s < 0.8 * alone.last_s


def test_two_pools_keep_prompts_away_from_decoding():
    of = replace(deployment(), model=served_model("llama-3.1-8b"))
    requests = stream("closed:32,4000,100")
    one, two = (replace(of, pools=pools) for pools in (None, (2, 1)))
    together, apart = (measures(simulate(PassTimes(each), requests), each, requests, {}) for each in (one, two))
    assert two.gpus == 3 and apart.tbt_p99_ms < 0.3 * together.tbt_p99_ms
    run = simulate(PassTimes(two), requests)
    assert all(each.made == each.request.output_tokens and each.first_s < each.last_s for each in run.served)


def test_the_cache_of_a_request_is_sent_between_pools():
    of = replace(deployment(), model=served_model("llama-3.1-8b"), pools=(1, 1))
    times, alone = PassTimes(of), at_once((4000, 2))
    served = simulate(times, alone).served[0]
    sent = 4000 * of.cache_bytes / 40e9
    assert served.last_s - served.first_s == pytest.approx(sent + times.seconds(1, 4000), rel=1e-6)


def test_an_engine_that_seldom_looks_does_so_after_prompts():
    of = deployment("sglang", polled=((0, 1000),))
    seldom = PassTimes(replace(of, engine=of.engine.with_numbers({"front_ms": 0.0})))
    requests = Stream(tuple(Request(at, 64, 900) for at in (0.0, 0.001, 0.002)))
    late = [each.waited_s for each in simulate(seldom, requests).served]
    assert late[1] < 0.2 and late[2] < 0.2


def test_what_arrives_during_a_pass_joins_one_later_if_the_next_is_scheduled():
    requests = Stream((Request(0.0, 64, 900), Request(0.2, 64, 8)))
    waited = []
    for ahead in (False, True):
        of = deployment("vllm", ahead=ahead)
        waited.append(simulate(PassTimes(of), requests).served[1].waited_s)
    assert 0.9 < (waited[1] - waited[0]) / PassTimes(of).seconds(1, 200) < 2.1


def test_an_engine_takes_a_part_of_the_memory_or_of_what_the_weights_leave():
    of_all = deployment(memory=0.9, memory_of_rest=False)
    of_rest = deployment(memory=0.9, memory_of_rest=True)
    assert of_rest.cache_room == pytest.approx(of_all.cache_room + 0.1 * (of_all.weight_bytes + 3e9))


def test_gpus_that_wait_take_energy():
    busy, idle = (serve_plan(Question("llama-3.1-8b", "h100", f"poisson:{rate},512,64")).asked for rate in (20, 0.1))
    watts = idle.found.joules_per_token * idle.found.tokens / idle.found.took_s
    assert 0.2 * 700 <= watts < 0.3 * 700
    assert idle.found.joules_per_token > 5 * busy.found.joules_per_token


def test_an_interval_of_acceptance_widens_the_answer():
    wide, narrow = (
        serve_plan(Question("llama-3.1-8b", "h100", "closed:4,512,64", acceptance=ends)).asked.found
        for ends in ((0.6, 0.8), (0.7, 0.7))
    )
    assert wide.tpot_ms.expected == narrow.tpot_ms.expected
    assert wide.tpot_ms.low < narrow.tpot_ms.low and wide.tpot_ms.high > narrow.tpot_ms.high


def test_users_wait_for_the_front_and_the_gpu_does_not():
    of = deployment()
    slow = replace(of, engine=of.engine.with_numbers({"front_ms": 50.0, "front_token_us": 1000.0}))
    requests = stream("closed:8,100-100,20-20")
    quick, late = (simulate(PassTimes(each), requests) for each in (of, slow))
    assert late.served[0].waited_s > quick.served[0].waited_s + 0.04
    assert max(each.last_s for each in late.served) >= 80 * (0.05 + 19 * 0.001)
    batch = at_once(*[(100, 20)] * 8)
    assert simulate(PassTimes(slow), batch).parts == simulate(PassTimes(of), batch).parts


def test_lengths_are_distributions_or_those_of_a_file(tmp_path):
    equal = stream("closed:4,100-100,7-7").requests
    assert {(each.prompt_tokens, each.output_tokens) for each in equal} == {(100, 7)}
    wide = stream("closed:400,1000~0.8,100-300", 3).requests
    prompts = [each.prompt_tokens for each in wide]
    assert sum(prompts) / len(prompts) == pytest.approx(1000, rel=0.1) and max(prompts) > 3000
    assert {100 <= each.output_tokens <= 300 for each in wide} == {True}
    path = tmp_path / "azure.csv"
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.680,374,44\n2023-11-16 18:15:50.995,396,109\n"
    )
    assert stream(str(path)).requests == (Request(0.0, 374, 44), Request(4.315, 396, 109))
    drawn = stream(f"poisson:5,{path}", 2)
    assert {each.prompt_tokens for each in drawn.requests} == {374, 396} and drawn == stream(f"poisson:5,{path}", 2)
    assert stream(f"closed:3,{path}").users == 3
    for wrong in ("closed:4,9-3,1", "closed:4,10~9,1", "closed:4,1-2~3,1", "closed:4,0.5,1", "poisson:1,nothing.csv"):
        with pytest.raises(InputError):
            stream(wrong)


def test_200_requests_take_less_than_two_seconds():
    of, requests = replace(deployment(), model=served_model("llama-3.1-8b")), stream("poisson:20,2000,500")
    assert len(requests.requests) == 200
    started = process_time()
    simulate(PassTimes(of), requests)
    assert process_time() - started < 2


def test_a_search_divides_experts_and_latents():
    of = Deployment(served_model("deepseek-v3"), hardware.find("b200"), all_engines()["sglang"], Format("fp8"))
    found = list(settings(of))
    assert {(each.tensor, each.expert, each.data) for _, each in found} >= {(8, 1, 1), (8, 8, 8), (1, 1, 1)}
    assert len({name for name, _ in found}) == len(found) > 200


def test_the_same_seed_gives_the_same_plan():
    question = Question("llama-3.1-8b", "h100", "poisson:8,200~0.5,30", seed=5)
    one, again, other = (serve_plan(each).table for each in (question, question, replace(question, seed=6)))
    assert one.equals(again) and not one.equals(other)


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
    fewer = serve_plan(Question("llama-3.1-8b", "h100", "closed:256,1024,64", slo={"ttft": 0.5}))
    assert fewer.asked.found.kept < 0.99 and "The nearest setting that keeps them: 16 users" in answer(fewer)
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
    points = points_of(batches=False).sample(75, random_state=1).reset_index(drop=True)
    first, token, *inside = scores(points, residuals(points))
    assert first < 0.28 and token < 0.16 and min(inside) > 0.75


def test_published_batches_are_near_what_is_simulated():
    errors = np.abs(np.expm1(-residuals(points_of(batches=True)))).mean(axis=0)
    assert len(points_of(batches=True)) == 22 and errors[0] < 0.08 and errors[1] < 0.08


def test_nothing_is_recorded_before_it_is_predicted(tmp_path):
    with pytest.raises(FileNotFoundError):
        record(tmp_path, tiny=True)
    predict(tmp_path, tiny=True)
    (row,) = json.loads((tmp_path / "predictions.json").read_text())
    assert all(row[name]["low"] < row[name]["expected"] < row[name]["high"] for name in ("ttft_ms", "tpot_ms"))


@pytest.mark.parametrize("text", ["[]", "{", '{"hidden_size": 8}', '{"hidden_size": 1e99}'])
def test_a_config_that_is_none_is_refused(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(InputError):
        served_model(str(tmp_path))
