"""The planned kernels in place of a step's ops: what belongs to a group in training, and what a step then takes."""

import json
from collections import Counter

import pytest

pytest.importorskip("torch")

import tracekit
from tracekit.advise.optimizations import fused_kernels
from tracekit.analyzers.core import InputError, Interval, Outcomes
from tracekit.analyzers.cost import hardware
from tracekit.analyzers.fuse import BY_HAND, Pass, Place, TimedKernel, placed, plan
from tracekit.analyzers.fuse import graph as graphs
from tracekit.analyzers.fuse.groups import backward_of, gradients_of
from tracekit.analyzers.predict import with_kernels
from tracekit.analyzers.predict.op_columns import op_list
from tracekit.reports.answer.cards import cards
from tracekit.run import GRAPH, kernels_json
from tracekit.run.folder import TIMED

H100 = hardware.find("h100")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A modelled training run of a Llama of two layers."""
    folder = tmp_path_factory.mktemp("llama")
    sizes = {"hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 2, "vocab_size": 1000}
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_attention_heads": 8, **sizes}
    (folder / "config.json").write_text(json.dumps(config))
    options = {"workload": "train", "batch_size": 2, "seq_len": 256, "dtype": "bf16", "device": "model", "gpu": "h100"}
    tracekit.profile(str(folder), output=folder / "run", **options)
    return folder / "run"


@pytest.fixture(scope="module")
def graph(run):
    return graphs.read(run / GRAPH)


def test_a_group_that_trains_has_the_gradients_of_its_views(graph):
    rows = {row.template: row for row in plan(graph, H100)}
    names = Counter(graph.name(node) for node in gradients_of(rows["rotary"].first.group, backward_of(graph)))
    assert names["slice_backward"] == 4  # two halves of queries and of keys
    gated = rows["gated_activation"].each
    assert (gated.launches_before, gated.launches_after) == (5, 2)  # silu's gradient is one kernel


def test_kernels_are_priced_by_what_they_move(graph):
    rows = {row.template: row.each for row in plan(graph, H100)}
    tokens, width = 2 * 256 * 2, 1024  # rows in bf16
    assert rows["gated_activation"].bytes_after == (3 + 5) * tokens * width
    assert rows["cross_entropy"].bytes_after < rows["cross_entropy"].bytes_before / 3


def test_a_large_head_is_added_up_in_parts(graph):
    from msgspec.structs import replace

    from tracekit.analyzers.fuse.replacement import CHUNK_BYTES, costs_after

    first = next(row.first for row in plan(graph, H100) if row.template == "cross_entropy")
    rows = CHUNK_BYTES // first.sizes["vocabulary"]  # twice as many as one part holds, in bf16
    once, twice = (costs_after(replace(first, sizes={**first.sizes, "rows": n}), []) for n in (rows // 2, rows))
    assert len(once) == 2
    assert len(twice) == 2 + 4  # widened, added, narrowed and scaled
    kernel = pytest.importorskip("tracekit.fuse.kernels.cross_entropy")
    assert kernel.CHUNK_BYTES == CHUNK_BYTES


def test_kernels_by_hand_are_those_without_apply():
    pytest.importorskip("triton")
    from importlib import import_module

    from tracekit.fuse.catalogue import TEMPLATES

    modules = {name: import_module(f"tracekit.fuse.kernels.{name}") for name in TEMPLATES}
    assert set(BY_HAND) == {name for name, module in modules.items() if not hasattr(module, "apply")}


def test_a_kernel_takes_the_place_of_its_ops():
    ops = op_list(
        name=["aten::mm", "aten::pow", "aten::_to_copy", "aten::pow"],
        layer=["a", "a.norm", "a.norm", "b.norm"],
        phase=["prefill"] * 4,
        host_ns=[10.0, 30.0, 10.0, 10.0],
        kernel_ns=[5.0, 6.0, 4.0, 7.0],
        launches=[1, 1, 1, 1],
        sync=[False, False, True, False],
    )
    places = Place("a.norm", "prefill", "aten::pow", 0, 1), Place("a.norm", "prefill", "aten::copy_", 0, 1)
    missing = Pass((Place("c", "prefill", "aten::pow", 0, 1),), 0.1, 1, False)
    after = with_kernels(ops, [("norm", Pass(places, 0.5, 1, False), 70.0), ("norm", missing, 70.0)], 10.0, "expected")
    assert after.name.tolist() == ["aten::mm", "aten::pow", "aten::pow"]
    assert after.kernel_ns.tolist() == [5.0, 5.0, 7.0]
    assert after.host_ns.tolist() == [10.0, 80.0, 10.0]  # half of the module's call, and the launch
    assert after.sync.tolist() == [False, True, False]
    shared = with_kernels(ops, [("packed_projections", Pass(places, 0.5, 1, False), 70.0)], 8.0, "expected")
    assert shared.host_ns.tolist() == [10.0, 22.0 + 2.0 + 70.0, 10.0]  # both modules are called as before


def test_all_groups_are_predicted_from_the_plan(run, graph):
    every, one = (tracekit.predict(run, apply=f"fused:{which}") for which in ("all", "1"))
    assert every.speedup.low < every.speedup.expected < every.speedup.high
    assert one.speedup.expected <= every.speedup.expected
    assert "tracekit fuse RUN --all" in every.how_to[0]
    assert {each.template for each in placed(graph, H100)} == {
        "add_norm",
        "rotary",
        "gated_activation",
        "cross_entropy",
    }
    with pytest.raises(InputError, match="no such group"):
        tracekit.predict(run, apply="fused:99")


def test_groups_that_keep_the_host_longer_are_named(run, monkeypatch):
    said = "takes longer to launch the kernels of these groups"
    monkeypatch.setattr(fused_kernels, "TRAINED_LAUNCH", Outcomes(0.0, 0.0, 0.0))
    assert not any(said in each for each in tracekit.predict(run, apply="fused:all").caveats)
    monkeypatch.setattr(fused_kernels, "TRAINED_LAUNCH", Outcomes(500.0, 500.0, 500.0))
    (caveat,) = (each for each in tracekit.predict(run, apply="fused:all").caveats if said in each)
    assert "replace: 1, 2" in caveat


def test_the_report_has_a_card_of_the_written_kernels(run, graph):
    """It names each group with what it is predicted to take and, of one that was timed, what it took."""
    assert "Fused kernels of the run's own plan" not in [card.advice.title for card in _cards(run)]
    row = next(row for row in plan(graph, H100) if row.template == "add_norm")
    kernels_json.add(run, H100, {row.key: TimedKernel(after_ns=1000.0, before_ns=5000.0, roof_fraction=0.9)})
    kernels_json.keep_gain(run, H100, Interval(1.2, 1.3, 1.4))
    card = next(card for card in _cards(run) if card.advice.title == "Fused kernels of the run's own plan")
    assert card.advice.speedup == Interval(1.2, 1.3, 1.4)
    said = ["".join(link.text for link in line) for line in card.evidence]
    assert any("residual + norm" in line and "measured, 90 % of the roof" in line for line in said)
    assert any("rotary" in line and line.endswith("predicted") for line in said)
    (run / TIMED).unlink()


def _cards(run):
    planned, others = cards(tracekit.analyze(run))
    return [*planned, *others]
