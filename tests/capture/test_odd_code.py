"""Code with tensors that are not plain ones, modelled for a GPU: sparse, quantized, nested, torch.func."""

import pandas as pd
import pytest
import torch
from click.testing import CliRunner
from torch import nn
from torch.func import functional_call, grad, vmap

import tracekit
from tracekit.analyzers.attribute import analyze
from tracekit.analyzers.core import InputError
from tracekit.analyzers.trace import load
from tracekit.cli import main


def modelled(folder, code):
    with tracekit.capture(folder, gpu="t4", device="model"):
        code()
    return analyze(load(folder))


def sparse_gradients():
    bag, dense = nn.EmbeddingBag(10_000, 32, mode="sum", sparse=True), nn.Linear(32, 1)
    optimizer = torch.optim.SparseAdam(list(bag.parameters()))
    dense(bag(torch.randint(0, 10_000, (64,)), torch.arange(0, 64, 4))).sum().backward()
    optimizer.step()
    diagonal = torch.sparse_coo_tensor(torch.arange(20_000).repeat(2, 1), torch.ones(20_000), (20_000, 20_000))
    torch.sparse.mm(diagonal, torch.ones(20_000, 8, device="cpu"))


def test_sparse_tensors_cost_what_they_store(tmp_path):
    work = modelled(tmp_path, sparse_gradients).work
    assert {"aten::_embedding_bag", "aten::addmm"} <= set(work.op_name)
    assert work.duration_ns.max() < 200_000  # a dense matrix of that size is 1.6 GB
    assert not work.op_name.isin(["aten::is_coalesced", "aten::_nnz"]).any()


def neighbours():
    x, chosen = nn.Linear(8, 64)(torch.randn(1000, 8)), torch.randint(0, 1000, (5000,))
    loss = x[chosen].sum() + x[:, torch.arange(16)].sum() + x[x.sum(1) > 0].sum()
    loss.backward()


def test_chosen_rows_are_counted_but_not_those_that_a_mask_chooses(tmp_path):
    work = modelled(tmp_path, neighbours).work.set_index("op_name")
    rows, columns, masked = work.loc["aten::index", "bytes"]
    assert rows == 4 * (1000 + 5000) * 64 + 8 * 5000
    assert columns == 2 * 4 * 1000 * 16 + 8 * 16
    assert pd.isna(masked)
    assert 3 * 4 * 5000 * 64 in set(work.loc["aten::index_put", "bytes"])


def per_sample_gradients():
    net = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))
    weights = dict(net.named_parameters())

    def loss(weights, x):
        return functional_call(net, weights, (x[None],)).square().mean()

    vmap(grad(loss), (None, 0))(weights, torch.randn(8, 16))


def test_the_layers_of_transformed_functions(tmp_path):
    layers = modelled(tmp_path, per_sample_gradients).layers
    assert set(layers.path) >= {"(model)", "0", "1", "2"} and (layers[layers.path == "0"].busy_ns > 0).all()


def int8_on_the_cpu():
    weights = torch.quantize_per_tensor(torch.ones(8, 8, device="cpu"), 0.1, 0, torch.qint8)
    torch.ops.quantized.linear_prepack(weights, None)


def nested():
    torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)], layout=torch.strided)


def flex():
    from torch.nn.attention.flex_attention import flex_attention

    each = torch.ones(1, 2, 16, 16, device="cpu")
    flex_attention(each, each, each)


REFUSED = [(int8_on_the_cpu, "CPUs only"), (nested, "no shape"), (flex, "torch.compile generates its kernel")]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("code", "why"), REFUSED)
def test_what_cannot_be_modelled_is_refused(tmp_path, code, why):
    with pytest.raises(InputError, match="cannot be modelled") as refused:
        modelled(tmp_path, code)
    assert why in str(refused.value.why)


def test_training_with_sparse_gradients_is_refused():
    with pytest.raises(InputError, match="cannot be trained") as refused:
        tracekit.profile(nn.EmbeddingBag(10, 4, sparse=True), torch.ones(2, 2).long(), gpu="t4", train=True)
    assert "sparse" in refused.value.why


def test_a_script_that_fails_at_once_shows_its_own_error(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import torch\nraise ValueError('of the script')\n")
    options = ["run", "--gpu", "t4", "--device", "model", "-o", str(tmp_path / "out")]
    done = CliRunner().invoke(main, [*options, str(script)])
    assert done.exit_code == 1 and "ValueError: of the script" in done.stderr
    assert "nothing to model" not in done.stderr
