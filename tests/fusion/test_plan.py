"""Groups of ops by data flow: their predicted time, their tiles, and the files that are written."""

import json
from pathlib import Path
from runpy import run_path

import msgspec
import pytest
from click.testing import CliRunner

from tracekit.analyzers.core import InputError
from tracekit.analyzers.cost import hardware
from tracekit.analyzers.fuse import Call, Graph, Node, Tensor, plan
from tracekit.analyzers.fuse import graph as graphs
from tracekit.analyzers.fuse.groups import find
from tracekit.analyzers.fuse.kernel import element_tiles, row_tiles
from tracekit.capture.fake.op_graph import numbers_in
from tracekit.cli import main
from tracekit.fuse import pointwise, proof, run_kernels
from tracekit.fuse.writing import Written, load, text
from tracekit.run import GRAPH

H100 = hardware.find("h100")


class Step:
    """Builds a graph of bf16 tensors, op by op."""

    def __init__(self):
        self.calls, self.nodes, self.tensors = [], [], {}
        self.layers = [("", ""), ("mlp", "MLP"), ("mlp.norm", "LlamaRMSNorm")]

    def tensor(self, *shape):
        self.tensors[len(self.tensors)] = Tensor(shape, "c10::BFloat16")
        return len(self.tensors) - 1

    def op(self, name, inputs, *shape, layer=1, launches=True, numbers=()):
        shapes = json.dumps([list(self.tensors[each].shape) for each in inputs])
        types = json.dumps(["c10::BFloat16"] * len(inputs))
        self.calls.append(Call(name, shapes, types, "", json.dumps([""] * len(inputs))))
        made = self.tensor(*shape)
        self.nodes.append(Node(len(self.calls) - 1, layer, "prefill", tuple(inputs), (made,), launches, -1, numbers))
        return made

    def graph(self):
        return Graph(tuple(self.calls), tuple(self.layers), self.tensors, tuple(self.nodes))


def names(graph):
    return [each.names for each in find(graph)]


def test_ops_that_data_does_not_connect_are_no_group():
    step = Step()
    x, y = step.tensor(64, 128), step.tensor(64, 128)
    step.op("aten::silu", [x], 64, 128)
    step.op("aten::tanh", [y], 64, 128)
    assert names(step.graph()) == []


def test_views_are_followed():
    step = Step()
    x = step.tensor(64, 128)
    turned = step.op("aten::view", [step.op("aten::silu", [x], 64, 128)], 128, 64, launches=False)
    step.op("aten::tanh", [turned], 128, 64)
    assert names(step.graph()) == [("silu", "tanh")]


def test_a_group_does_not_wait_for_itself():
    """The residual is added after a product that needs the first op: no kernel can hold both."""
    step = Step()
    x, weight = step.tensor(64, 128), step.tensor(128, 128)
    first = step.op("aten::silu", [x], 64, 128)
    product = step.op("aten::mm", [first, weight], 64, 128)
    second = step.op("aten::add", [first, product], 64, 128)
    step.op("aten::tanh", [second], 64, 128)
    assert names(step.graph()) == [("add", "tanh")]


def test_ops_over_other_elements_are_no_group():
    step = Step()
    x = step.tensor(64, 128)
    small = step.op("aten::silu", [x], 64, 128)
    step.op("aten::repeat", [small], 64 * 50, 128)
    assert names(step.graph()) == []


def test_what_is_read_in_a_group_is_counted_once():
    step = Step()
    x, y = step.tensor(4096, 4096), step.tensor(4096, 4096)
    gate = step.op("aten::silu", [x], 4096, 4096)
    step.op("aten::mul", [gate, y], 4096, 4096)
    (group,) = find(step.graph())
    assert set(group.inputs) == {x, y}
    assert len(group.outputs) == 1


@pytest.mark.parametrize(("rows", "outputs", "planned"), [(4096, 50257, 1), (4096, 50264, 0), (1, 50257, 0)])
def test_an_odd_product_is_padded_where_that_is_faster(rows, outputs, planned):
    step = Step()
    step.layers.append(("lm_head", "Linear"))
    weight = step.op("aten::t", [step.tensor(outputs, 768)], 768, outputs, launches=False)
    step.op("aten::mm", [step.tensor(rows, 768), weight], rows, outputs, layer=3)
    kernels = plan(step.graph(), H100)
    assert [each.template for each in kernels] == ["padded_projection"] * planned
    for each in kernels:
        assert each.sizes == {"rows": 4096, "columns": 768, "outputs": 50257}
        assert each.after_ns.expected < 0.3 * each.before_ns


def test_a_model_has_its_patterns(llama):
    rows = {(each.pattern, each.template): each for each in plan(llama[1], H100)}
    groups = {key: each.groups for key, each in rows.items()}
    assert groups == {
        ("residual + norm", "add_norm"): 4,
        ("rotary embedding", "rotary"): 2,
        ("gated activation", "gated_activation"): 2,
        ("packed QKV projection", "packed_projections"): 2,
        ("packed gate and up projection", "packed_projections"): 2,
        ("norm", ""): 1,
    }
    norm = rows["residual + norm", "add_norm"]
    assert norm.constants["NAMES"] == ("input_layernorm", "self_attn", "post_attention_layernorm", "mlp")
    assert norm.each.launches_before == 9
    # x and the residual in, the sum and its norm out, in bf16; the weight.
    assert norm.each.bytes_after == 4 * 64 * 2048 * 2 + 2048 * 2
    for row in rows.values():
        assert row.after_ns.low < row.after_ns.expected < row.after_ns.high
        assert row.after_ns.expected < row.before_ns


def test_a_graph_is_kept_as_it_is(llama, tmp_path):
    (tmp_path / GRAPH).write_bytes(graphs.to_bytes(llama[1]))
    assert msgspec.json.encode(graphs.read(tmp_path / GRAPH)) == msgspec.json.encode(llama[1])
    (tmp_path / GRAPH).write_bytes(b"no graph")
    with pytest.raises(InputError):
        graphs.read(tmp_path / GRAPH)


def test_tiles_differ_between_architectures_and_say_why():
    tiles = {name: row_tiles(4096, 2, hardware.find(name)) for name in ("t4", "a100", "h100")}
    assert tiles["t4"].launches[0] != tiles["h100"].launches[0]
    assert element_tiles(2, hardware.find("t4")).launches[0] != element_tiles(2, H100).launches[0]
    assert "32 warps" in tiles["t4"].reason
    assert "64 warps" in tiles["h100"].reason


def test_the_plan_is_printed_without_torch_at_work(run):
    result = CliRunner().invoke(main, ["fuse", str(run)])
    assert result.exit_code == 0, result.output
    assert "residual + norm, 4 ×" in result.output
    assert "--all" in result.output


def test_a_kernel_is_written_after_its_proof(run, tmp_path):
    pytest.importorskip("triton")
    rows, _ = run_kernels.rows_of(run, H100)
    number = next(i for i, row in enumerate(rows, 1) if row.template == "gated_activation")
    result = CliRunner().invoke(main, ["fuse", str(run), "--group", str(number), "-o", str(tmp_path)])
    assert result.exit_code == 0, result.output
    (path,) = tmp_path.glob("*.py")
    source = path.read_text()
    assert "LAYERS = ('LlamaMLP',)" in source
    assert "model.layers.*.mlp" in source
    assert "v1 = gate * tl.sigmoid(gate)" in source  # from the ops
    compile(source, str(path), "exec")


def test_the_body_of_a_chain_comes_from_its_ops(tmp_path):
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    step = Step()
    x = step.op("aten::mm", [step.tensor(64, 128), step.tensor(128, 128)], 64, 128)
    cubed = step.op("aten::pow", [x], 64, 128, numbers=(3.0,))
    scaled = step.op("aten::div", [cubed], 64, 128, numbers=(7.0,))
    step.op("aten::mul", [step.op("aten::neg", [step.op("aten::sub", [scaled, x], 64, 128)], 64, 128), x], 64, 128)
    (group,) = find(step.graph())
    path = tmp_path / "chain.py"
    path.write_text(text(Written("pointwise_chain", body=pointwise.body(group, ("x0",), "_gradient"))))
    kernel = load(path, "chain")
    inputs = torch.randn(5)
    torch.testing.assert_close(kernel.reference(inputs), -((inputs**3) / 7.0 - inputs) * inputs)
    checks = proof.prove(kernel, "pointwise_chain", (torch.float32,), trains=True, device="cpu")
    assert proof.failed(checks) == []


def test_what_fails_its_proof_is_not_written(run, tmp_path, monkeypatch):
    pytest.importorskip("triton")
    monkeypatch.setattr(proof, "prove", lambda *_, **__: [proof.Check("bfloat16, rows 3", False, 7.0)])
    rows, _ = run_kernels.rows_of(run, H100)
    number = next(i for i, row in enumerate(rows, 1) if row.template == "gated_activation")
    result = CliRunner().invoke(main, ["fuse", str(run), "--group", str(number), "-o", str(tmp_path)])
    assert result.exit_code == 1
    assert "7.0 times what is allowed" in result.output
    assert not list(tmp_path.iterdir())


def test_a_mask_of_infinities_does_not_spoil_the_graph():
    assert numbers_in((object(), float("-inf"))) == ()
    assert numbers_in((object(), 3, 4)) == (3.0,)


def test_errors_say_what_to_do(run, tmp_path):
    assert "Profile the model" in _error(["fuse", str(_without_graph(run, tmp_path)), "--all"])
    assert "--group" in _error(["fuse", str(run), "--group", "99"])
    refused = CliRunner().invoke(main, ["fuse", str(run), "--all", "--gpu", "t4"])
    assert refused.exit_code == 1
    assert "--dtype fp16" in refused.output


def _without_graph(run, tmp_path):
    (tmp_path / "run.json").write_text((run / "run.json").read_text())
    (tmp_path / "trace.json.gz").touch()
    return tmp_path


def _error(words):
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 1
    return result.output


def test_the_tiles_on_the_page_are_fresh():
    docs = Path(__file__).parents[2] / "docs"
    assert (docs / "fusion.md").read_text() == run_path(str(docs / "generate.py"))["fusion"]()


def test_fused_takes_all_or_a_number():
    from tracekit.advise import find as optimization

    assert optimization("fused:all").name == "fused-kernels:all"
    assert optimization("fused:3").groups == "3"
    with pytest.raises(InputError):
        optimization("fused:some")


def test_a_run_without_a_gpu_has_no_written_kernels(llama):
    from tracekit.apply import Subject, with_written_kernels

    with pytest.raises(InputError, match="No fused kernels"):
        with_written_kernels(Subject(model=None, settings=llama[0].changed(gpu="")), ())
