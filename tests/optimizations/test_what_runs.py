"""Advice depends on what runs the model: options of a serving engine, autocast in training, otherwise code."""

import pandas as pd
import pytest
from msgspec.structs import replace
from op_lists import base

from tracekit.advise import OPTIMIZATIONS, Search, advise, find
from tracekit.analyzers.attribute.origin import runtime_of
from tracekit.analyzers.predict.running import GraphUse, Running


def run_by(runtime, **options):
    run = base(batch_size=1, **options)
    return replace(run, source=replace(run.source, runtime=runtime))


@pytest.mark.parametrize(
    ("name", "runtime"),
    [
        ("execute_context_1(512)_generation_0(0)", "vllm"),
        ("execute_new_1_cached_2", "vllm"),
        ("step[DECODE bs=4]", "sglang"),
        ("aten::addmm", ""),
    ],
)
def test_host_rows_tell_what_runs(name, runtime):
    host = pd.DataFrame({"name": pd.Categorical(["aten::mm", name])})
    assert runtime_of(host, training=False) == runtime
    assert runtime_of(host, training=True) == (runtime or "training")


@pytest.mark.parametrize(
    ("names", "runtime"),
    [
        (["_C::rms_norm", "vllm::unified_attention_with_output"], "vllm"),
        (["_C_cache_ops::reshape_and_cache_flash"], "vllm"),
        (["vllm::all_reduce", "sgl_kernel::rmsnorm"], "sglang"),
        (["_C::rms_norm"], ""),
    ],
)
def test_without_ranges_the_ops_of_an_engine_tell_what_runs(names, runtime):
    host = pd.DataFrame({"name": pd.Categorical(["aten::mm", *names])})
    assert runtime_of(host, training=False) == runtime
    assert runtime_of(host, training=True) == "training"


def test_sglang_may_name_batches_as_vllm_does():
    names = ["execute_16_context_1(sq16sk16sqsq256sqsk256)_generation_0(sq0sk0sqsq0sqsk0)", "step[EXTEND bs=1 toks=16]"]
    assert runtime_of(pd.DataFrame({"name": pd.Categorical(names)}), training=False) == "sglang"


def test_an_engine_quantizes_the_inputs_of_a_product_in_one_kernel():
    eager, served = (find("fp8-dynamic").transform(run_by(each, tokens=4096), "expected") for each in ("", "vllm"))
    products = int((eager.name == "aten::addmm").sum())
    assert len(eager) - len(served) == 6 * products
    assert served.host_ns.sum() < eager.host_ns.sum() / 2


def test_host_work_of_an_engine_is_advised_on():
    assert "cudagraph_mode" in find("preprocessing").how(run_by("vllm"))
    assert "no switch" not in str(find("preprocessing").obstacle(run_by("vllm")))


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_serving_engine_is_told_by_its_switches(engine):
    run = run_by(engine, precision="fp32")
    advice = advise(run)
    assert advice.recommendations
    command = {"vllm": "vllm serve", "sglang": "sglang.launch_server"}[engine]
    assert all(command in each.how_to for each in (*advice.recommendations, *advice.plan))
    assert "no switch" in find("sdpa").obstacle(run)
    assert not {"sdpa", "fused-kernels", "max-autotune"} & {each.id for each in advice.recommendations}


def test_training_is_told_to_use_autocast():
    run = run_by("training", precision="fp32")
    assert "torch.autocast" in find("mixed-precision").how(run)
    assert "TrainingArguments(bf16=True)" in find("mixed-precision").how(run)
    assert not {"half-precision"} & {each.id for each in advise(run).recommendations}
    assert "DistributedDataParallel" in find("compile").how(run)
    assert find("half-precision").how(run_by("", precision="fp32")) == "model = model.to(torch.bfloat16)"


def test_what_is_for_inference_is_refused_in_training():
    run = run_by("training")
    refused = {each.id for each in OPTIMIZATIONS if each.obstacle(run)}
    assert {"nf4", "llm-int8", "int4-weight-only", "cuda-graphs", "max-autotune", "static-cache"} <= refused


def test_what_replays_graphs_is_not_told_to():
    replaying = replace(base(batch_size=1, host_us=40.0), running=Running(graphed=0.9, graph_launches=1))
    assert all("already" in find(name).obstacle(replaying) for name in ("cuda-graphs", "compile", "max-autotune"))
    asking = replace(base(batch_size=1, host_us=40.0), graph_use=GraphUse(requested=3))
    assert "graph-not-replaying" in find("cuda-graphs").obstacle(asking)
    assert "cudagraph_mark_step_begin" in find("graph-not-replaying").how_to(asking)


def test_speculative_decoding_is_planned_only_when_nothing_else_helps():
    run = base(batch_size=1, host_us=40.0)
    run = replace(run, ops=run.ops.assign(phase="decode"))
    drafting = find("speculative-decoding:0.9")
    search = Search(run)
    assert [step.id for step in search.plan([drafting])] == ["speculative-decoding"]
    planned = [step.id for step in search.plan([drafting, find("cuda-graphs")])]
    assert planned == ["cuda-graphs"]
