"""Ops whose bytes are not those of all inputs and outputs: gathers, scatters, gradients, losses, optimizers."""

import gzip
import json
from pathlib import Path

import pytest
import torch
from recorded_calls import Recorded, counted_flops, meta, nbytes, record, record_one

from tracekit.analyzers.cost import Cost, Product, cost_of_signature

aten = torch.ops.aten
HALF, LONG = torch.float16, torch.int64


def cost(name: str, *inputs: tuple[object, str, str]) -> Cost:
    """The cost of a call; each input is its (dims, type, value)."""
    shapes, types, values = (json.dumps(column) for column in zip(*inputs, strict=True))
    op_cost = cost_of_signature(f"aten::{name}", shapes, types, values)
    assert op_cost is not None
    return op_cost


FLAGS = ([], "Scalar", "False")


def test_embedding_reads_rows_not_the_table() -> None:
    op_cost = record_one(lambda: aten.embedding(meta(50257, 768), meta(1, 512, dtype=LONG))).cost()
    assert op_cost.read_bytes == 512 * 768 * 4 + 512 * 8
    assert op_cost.write_bytes == 512 * 768 * 4
    assert (op_cost.flops, op_cost.weight_bytes, op_cost.family) == (0, 0, "embedding")


def test_gathers() -> None:
    select = record_one(lambda: aten.index_select(meta(10, 6), 1, meta(4, dtype=LONG))).cost()
    assert (select.read_bytes, select.write_bytes) == (4 * 40 + 4 * 8, 4 * 40)
    gather = record_one(lambda: aten.gather(meta(10, 6), 0, meta(3, 2, dtype=LONG))).cost()
    assert (gather.read_bytes, gather.write_bytes) == (4 * 6 + 8 * 6, 4 * 6)


def test_a_gather_reads_no_more_than_its_table() -> None:
    op_cost = record_one(lambda: aten.embedding(meta(2, 768), meta(1, 512, dtype=LONG))).cost()
    assert op_cost.read_bytes == 2 * 768 * 4 + 512 * 8


def test_scatters() -> None:
    x, index, source = meta(10, 6), meta(3, 6, dtype=LONG), meta(3, 6)
    in_place = record_one(lambda: aten.scatter_(x, 0, index, source)).cost()
    assert (in_place.read_bytes, in_place.write_bytes) == (8 * 18 + 4 * 18, 4 * 18)
    adding = record_one(lambda: aten.scatter_add_(x, 0, index, source)).cost()
    assert (adding.read_bytes, adding.write_bytes, adding.flops) == (8 * 18 + 2 * 4 * 18, 4 * 18, 18)
    copying = record_one(lambda: aten.scatter(x, 0, index, source)).cost()
    assert (copying.read_bytes, copying.write_bytes) == (8 * 18 + 4 * 18 + 4 * 60, 4 * 18 + 4 * 60)
    value = record_one(lambda: aten.scatter_(x, 0, index, 1.0)).cost()
    assert (value.read_bytes, value.write_bytes) == (8 * 18, 4 * 18)


def test_index_whose_indices_are_not_recorded_has_no_cost() -> None:
    assert cost_of_signature("aten::index", "[[4,5,6],[]]", '["float",""]', '["",""]') is None


def test_an_index_that_is_missing_takes_the_whole_axis() -> None:
    op_cost = cost("index", ([4, 5, 6], "float", ""), ([[], [3]], "TensorList", ""))
    assert (op_cost.read_bytes, op_cost.write_bytes) == (4 * 72 + 8 * 3, 4 * 72)


@pytest.mark.parametrize("name", ["index_put_", "index_put"])
def test_setting_by_index_moves_the_values(name: str) -> None:
    op_cost = cost(name, ([4, 5, 6], "float", ""), ([], "", ""), ([3, 5, 6], "float", ""), FLAGS)
    assert (op_cost.read_bytes, op_cost.write_bytes) == (4 * 90, 4 * 90)


def test_gradient_of_an_embedding_adds_rows_to_what_a_fill_has_zeroed() -> None:
    call = record_one(lambda: aten.embedding_dense_backward(meta(2, 7, 16), meta(2, 7, dtype=LONG), 100, -1, False))
    assert (call.cost().read_bytes, call.cost().write_bytes) == (4 * 14 * 16 + 8 * 14, 4 * 14 * 16)


def test_in_place_ops_read_two_and_write_one() -> None:
    op_cost = record_one(lambda: aten.add_(meta(8, 16), meta(8, 16))).cost()
    assert (op_cost.flops, op_cost.read_bytes, op_cost.write_bytes) == (128, 2 * 4 * 128, 4 * 128)


def test_out_variants_do_not_read_their_output() -> None:
    op_cost = cost("mul", ([], "double", ""), ([4, 6], "float", ""), ([0], "c10::Half", ""))
    assert (op_cost.read_bytes, op_cost.write_bytes) == (4 * 24, 2 * 24)


def test_a_list_of_reduced_dims_leaves_the_others() -> None:
    op_cost = cost("sum", ([8, 512, 768], "float", ""), ([], "ScalarList", "[0, 1]"), FLAGS, ([], "", ""))
    assert (op_cost.flops, op_cost.write_bytes) == (8 * 512 * 768, 4 * 768)


def test_copies_and_casts() -> None:
    cast = cost("copy_", ([4, 6], "float", ""), ([6], "c10::BFloat16", ""), FLAGS)
    assert (cast.read_bytes, cast.write_bytes, cast.family) == (2 * 6, 4 * 24, "copy")
    filled = cost("fill_", ([4, 6], "long int", ""), ([], "Scalar", "0"))
    assert (filled.read_bytes, filled.write_bytes) == (0, 8 * 24)


def test_layer_norm_composite_and_kernel_agree_but_for_the_statistics() -> None:
    parts = [([2, 5, 8], "float", ""), ([], "ScalarList", "[8]"), ([8], "float", ""), ([8], "float", "")]
    whole, kernel = cost("layer_norm", *parts), cost("native_layer_norm", *parts)
    assert whole.flops == kernel.flops
    assert kernel.write_bytes - whole.write_bytes == 2 * 10 * 4


def test_gradients_of_a_layer_norm() -> None:
    rows = meta(2, 5, 1)
    weight = meta(8)

    def run() -> object:
        x = meta(2, 5, 8)
        return aten.native_layer_norm_backward(x, x, [8], rows, rows, weight, weight, [True, True, True])

    op_cost = record_one(run).cost()
    assert op_cost.read_bytes == 4 * (2 * 80 + 2 * 10 + 8)
    assert op_cost.write_bytes == nbytes(run())


@pytest.mark.parametrize(("training", "statistics"), [(True, 4), (False, 0)])
def test_batch_norm(training: bool, statistics: int) -> None:
    channels = meta(8)
    run = lambda: aten.cudnn_batch_norm(meta(2, 8, 5, 5), *[channels] * 4, training, 0.1, 1e-5)  # noqa: E731
    op_cost = record_one(run).cost()
    assert op_cost.read_bytes == 4 * (400 + 4 * 8)
    assert op_cost.write_bytes == 4 * (400 + statistics * 8)


def test_losses() -> None:
    x, target = meta(512, 50257), meta(512, dtype=LONG)
    forward = record_one(lambda: aten.nll_loss_forward(x, target, None, 1, -100)).cost()
    assert (forward.read_bytes, forward.write_bytes) == (512 * 4 + 512 * 8, 4)
    back = record_one(lambda: aten.nll_loss_backward(meta(), x, target, None, 1, -100, meta())).cost()
    assert back.write_bytes == 512 * 4
    squares = record_one(lambda: aten.mse_loss(meta(4, 6), meta(4, 6))).cost()
    assert (squares.read_bytes, squares.write_bytes, squares.flops) == (2 * 96, 4, 3 * 24)
    each = record_one(lambda: aten.mse_loss(meta(4, 6), meta(4, 6), 0)).cost()
    assert each.write_bytes == 96


def test_foreach_lists() -> None:
    tensors = [[768], [768, 2304]]
    elements = 768 + 768 * 2304
    added = cost("_foreach_add_", (tensors, "TensorList", ""), (tensors, "TensorList", ""), ([], "Scalar", "1"))
    assert (added.flops, added.read_bytes, added.write_bytes) == (elements, 8 * elements, 4 * elements)
    halves = cost_of_signature(
        "aten::_foreach_mul_", json.dumps([tensors, []]), '["TensorList","Scalar"]', "", list_dtype="c10::Half"
    )
    assert halves is not None
    assert (halves.read_bytes, halves.precision) == (2 * elements, "fp16")


@pytest.mark.parametrize(("amsgrad", "states"), [("False", 2), ("True", 3)])
def test_fused_adam(amsgrad: str, states: int) -> None:
    """An optimizer of 148 tensors, whose shapes the profiler elides: 16 to 20 bytes read a parameter."""
    types = ["TensorList"] * 6 + ["Scalar"] * 7
    values = [""] * 6 + ["0.001", "0.9", "0.999", "0.01", "1e-08", amsgrad, "False"]
    op_cost = cost_of_signature(
        "aten::_fused_adamw_", json.dumps([[]] * 13), json.dumps(types), json.dumps(values), list_elements=1000
    )
    assert op_cost is not None
    assert op_cost.read_bytes == 4 * 1000 * (2 + states)
    assert op_cost.write_bytes == 4 * 1000 * (1 + states)
    assert op_cost.family == "optimizer"


def test_convolution_flops_are_torchs() -> None:
    for run in (
        lambda: torch.conv2d(meta(2, 8, 11, 13), meta(6, 8, 3, 3), stride=2, padding=1),
        lambda: torch.conv2d(meta(2, 8, 11, 13), meta(8, 2, 3, 3), groups=4),
        lambda: torch.conv_transpose2d(meta(2, 8, 5, 5), meta(8, 3, 4, 4), stride=2),
    ):
        assert record_one(run).cost().flops == counted_flops(run) > 0


def test_a_convolution_is_a_gemm_for_each_group() -> None:
    op_cost = record_one(lambda: torch.conv2d(meta(2, 8, 5, 5), meta(12, 2, 3, 3), groups=4)).cost()
    assert op_cost.work == Product(4, 2 * 3 * 3, 12 // 4, 2 * 9, weight="b")
    assert op_cost.weight_bytes == 4 * 12 * 2 * 9


def test_convolution_backward() -> None:
    def step() -> None:
        x, weight = meta(2, 8, 11, 13).requires_grad_(), meta(6, 8, 3, 3).requires_grad_()
        torch.conv2d(x, weight, stride=2, padding=1).sum().backward()

    (back,) = (call for call in record(step) if call.name == "aten::convolution_backward")
    forward_flops = 2 * 2 * 6 * 6 * 7 * 8 * 9
    assert back.cost().flops == 2 * forward_flops == counted_flops(step) - forward_flops
    grad, x, weight = 2 * 6 * 6 * 7, 2 * 8 * 11 * 13, 6 * 8 * 9
    assert back.cost().read_bytes == 4 * (grad + x + weight)
    assert back.cost().write_bytes == 4 * (x + weight)


def test_every_kernel_of_a_training_step_has_a_cost() -> None:
    """The ops of a small model's step that compute or move something."""
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True, device="meta")
    embedding = torch.nn.Embedding(100, 32, device="meta")
    head = torch.nn.Linear(32, 100, device="meta")
    optimizer = torch.optim.SGD([*layer.parameters(), *head.parameters()], lr=0.1, momentum=0.9, foreach=True)

    def step() -> None:
        logits = head(layer(embedding(meta(2, 16, dtype=LONG))))
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), meta(32, dtype=LONG)).backward()
        optimizer.step()

    free = {call.name for call in record(step) if _cost(call) is None and call.name.startswith("aten::")}
    views = ("view", "_unsafe_view", "t", "transpose", "permute", "expand", "unsqueeze", "squeeze", "select", "detach")
    assert free <= {f"aten::{name}" for name in (*views, "alias", "split", "empty", "empty_like", "as_strided")}


def _cost(call: Recorded) -> Cost | None:
    return cost_of_signature(call.name, call.shapes, call.dtypes, call.values)


@pytest.mark.parametrize(
    "name", ["h100_bert-small", "mi300_bert-small", "h200_gpt2_fp32-eager_prefill", "h200_llama-1b_bf16_decode"]
)
def test_the_kernels_of_real_traces_have_costs(shared: Path, name: str) -> None:
    """Each kernel has the cost of the op that launched it, computed from the inputs as the trace writes them."""
    trace = json.loads(gzip.decompress((shared / "traces" / f"{name}.json.gz").read_bytes()))
    ops = {event["args"].get("External id"): event for event in trace["traceEvents"] if event.get("cat") == "cpu_op"}
    kernels = [event for event in trace["traceEvents"] if event.get("cat") == "kernel"]
    costed = 0.0
    for kernel in kernels:
        op = ops[kernel["args"]["External id"]]
        texts = (json.dumps(op["args"][key]) for key in ("Input Dims", "Input type", "Concrete Inputs"))
        costed += kernel["dur"] * (cost_of_signature(op["name"], *texts) is not None)
    assert costed / sum(kernel["dur"] for kernel in kernels) > 0.99


def test_complex_numbers_of_integers_have_no_cost() -> None:
    columns = (json.dumps([column, column]) for column in ([], "long int", ""))
    assert cost_of_signature("aten::polar", *columns) is None
