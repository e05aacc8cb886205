"""Modelled ranks of jobs: the messages that torch's own sharding sends, and when they run."""

import json

import pytest

import tracekit
from tracekit.analyzers import analyze
from tracekit.analyzers.core import InputError
from tracekit.analyzers.cost import hardware
from tracekit.analyzers.ranks import summarize
from tracekit.analyzers.trace import ProcessGroup, reading
from tracekit.capture import complete, model_trace, ranks_here
from tracekit.capture.complete_settings import _check_ranks
from tracekit.run import Settings
from tracekit.run.settings import split_of

WIDTH, LAYERS, VOCABULARY, BATCH, TOKENS = 64, 2, 96, 2, 8
LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": WIDTH,
    "intermediate_size": 2 * WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": VOCABULARY,
    "tie_word_embeddings": False,
    "dtype": "float32",
}


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """The trace of the first rank of a job; a Llama of two layers, unless another model is named."""
    folder = tmp_path_factory.mktemp("llama")
    (folder / "config.json").write_text(json.dumps(LLAMA))

    def modelled(**options):
        sizes = {"batch_size": BATCH, "seq_len": TOKENS, "model": str(folder), "workload": "train"}
        settings = complete(Settings(**{**sizes, "gpu": "h200", "device": "model", "steps": 1, **options}))
        path = folder / "trace.json.gz"
        model_trace.write_trace(settings, hardware.find("h200"), path)
        return reading.load(path)

    return modelled


@pytest.fixture(scope="module")
def rank(trace):
    """The summary of that trace."""
    return lambda **options: summarize(trace(**options))


def messages(summary):
    calls = summary.calls
    return [tuple(row) for row in calls[["kind", "bytes"]].astype({"kind": str}).itertuples(index=False)]


def test_data_parallel_buckets_are_those_that_ddp_filled_on_two_h200(rank):
    """As recorded in examples/ranks/h200-ddp-healthy-2."""
    summary = rank(model="gpt2", data_parallel=2)
    sizes = [9_446_400, *[28_351_488] * 11, 176_446_464]
    assert messages(summary) == [("all-reduce", size) for size in sizes]
    assert summary.world_size == 2 and summary.groups == (ProcessGroup("0", (0, 1)),)
    assert summary.calls["sequence"].tolist() == list(range(13))
    assert set(summary.calls["stream"]) == {20} and set(summary.calls["phase"]) == {"backward"}


def test_sharded_weights_are_gathered_twice_and_reduced_once(rank):
    summary = rank(fsdp=True, world_size=16, link="ib")
    layer = 4 * (2 * WIDTH * WIDTH + 2 * WIDTH * WIDTH // 2 + 3 * WIDTH * 2 * WIDTH + 2 * WIDTH)
    rest = 4 * (2 * VOCABULARY * WIDTH + WIDTH)
    called = messages(summary)
    assert called.count(("all-gather", layer)) == 2 * LAYERS, "before the forward and the backward pass"
    assert called.count(("reduce-scatter", layer)) == LAYERS
    assert called.count(("all-gather", rest)) == called.count(("reduce-scatter", rest)) == 1


def test_tensor_parallel_layers_reduce_twice_and_gather_the_logits(rank):
    called = messages(rank(tensor_parallel=2, workload="prefill"))
    assert called == [
        *[("all-reduce", BATCH * TOKENS * WIDTH * 4)] * (2 * LAYERS),
        ("all-gather", BATCH * TOKENS * VOCABULARY * 4),
    ]


@pytest.mark.parametrize("workload", ["prefill", "decode", "train"])
def test_a_tensor_parallel_rank_multiplies_its_part_alone(trace, workload):
    """In inference mode, DTensor finds the layout of a linear layer by calling it with the shapes of all ranks."""
    whole, part = (
        analyze(trace(tensor_parallel=ranks, workload=workload)).layer_types.set_index("type") for ranks in (0, 2)
    )
    assert part["flops"]["Linear"] == pytest.approx(whole["flops"]["Linear"] / 2, rel=1e-3)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"tensor_parallel": 4}, "heads of keys"),
        ({"tensor_parallel": 2, "model": "gpt2"}, "plan"),
        ({"data_parallel": 2, "workload": "prefill"}, "trains nothing"),
        ({"data_parallel": 2, "fsdp": True, "world_size": 2}, "Asked for"),
        ({"world_size": 4}, "4 ranks"),
        ({"data_parallel": 64}, "NVLink connects"),
    ],
)
def test_jobs_that_cannot_be_are_refused(rank, options, why):
    with pytest.raises(InputError) as refused:
        rank(**options)
    assert why in " ".join(map(str, vars(refused.value).values()))


def test_no_more_ranks_than_gpus(monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    settings = Settings(model="gpt2", device="cuda", data_parallel=2, workload="train")
    with pytest.raises(InputError, match="This machine has 1"):
        _check_ranks(settings)


@pytest.mark.slow
def test_ranks_on_this_host_write_a_trace_each(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    sizes = {"batch_size": BATCH, "seq_len": TOKENS, "steps": 2, "device": "cpu", "data_parallel": 2}
    settings = complete(Settings(model=str(tmp_path), workload="train", **sizes))
    ranks_here.write(settings, settings.split, tmp_path / "job", lambda _: None)
    job = tracekit.ranks(tmp_path / "job", use_cache=False)
    assert (job.world_size, len(job.ranks), job.steps) == (2, 2, 2)
    assert job.groups["parallelism"].tolist() == ["data"]


@pytest.mark.slow
def test_a_rank_that_fails_ends_the_others(tmp_path):
    settings = Settings(model="no-such-model", device="cpu", data_parallel=2, workload="train", seq_len=8)
    with pytest.raises(InputError, match=r"Rank . failed"):
        ranks_here.write(settings, settings.split, tmp_path, lambda _: None)


def test_one_gpu_has_no_split():
    assert split_of(0, 0, False, 0, "nvlink") is None
    assert split_of(64, 0, False, 64, "ib").ranks == 64
