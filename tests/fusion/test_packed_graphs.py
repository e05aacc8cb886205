"""What surrounds packed layers becomes part of their kernel in compiled graphs, and the kernel computes it."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from torch.fx.experimental.proxy_tensor import make_fx

import tracekit
from tracekit.quantization import graphs, layers

PLAIN = torch.ops.tracekit.weight_only_product.default


class Norm(torch.nn.Module):
    """As models of transformers define it."""

    def __init__(self, size):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(size) + 0.5)

    def forward(self, x):
        wide = x.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * wide.to(x.dtype)


class Block(torch.nn.Module):
    """A layer before something else, such as attention, and one after it; then a gated pair, and one behind it."""

    def __init__(self):
        super().__init__()
        self.norm, self.before, self.after = Norm(64), torch.nn.Linear(64, 96, False), torch.nn.Linear(96, 64)
        self.second, self.pair, self.down = Norm(64), torch.nn.Linear(64, 256, False), torch.nn.Linear(128, 64, False)

    def forward(self, x):
        x = x + self.after(torch.sin(self.before(self.norm(x))))
        gate, up = self.pair(self.second(x)).split([128, 128], -1)
        return x + self.down(torch.nn.functional.silu(gate) * up)


def rewritten(rows, monkeypatch):
    """Return the result of a quantized block, that of its graph after inductor's patterns, and the graph's nodes."""
    from torch._inductor.decomposition import select_decomp_table
    from torch._inductor.fx_passes.post_grad import pass_patterns

    monkeypatch.setattr(layers, "_multiplied", layers._compiled)
    block, x = tracekit.quantize(Block().half().eval(), "int4", group_size=32), torch.randn(1, rows, 64).half()
    held = {**dict(block.named_parameters()), **dict(block.named_buffers())}

    def called(held, x):
        return torch.func.functional_call(block, held, (x,))

    with torch.no_grad():
        module = make_fx(called, decomposition_table=select_decomp_table(), tracing_mode="fake")(held, x)
    graphs.register(PLAIN)
    for patterns in pass_patterns:
        patterns.apply(module.graph)
    module.graph.eliminate_dead_code()
    module.recompile()
    return block(x), module(held, x), module.graph.nodes


def test_norms_gates_and_residuals_become_part_of_packed_layers(monkeypatch):
    expected, got, nodes = rewritten(1, monkeypatch)
    calls = [each for each in nodes if each.target is graphs._BLOCK]
    gain, gated, residual, ahead = (graphs._ARGUMENTS.index(name) for name in ("gain", "gated", "residual", "ahead"))
    done = [(each.args[gain] is not None, each.args[gated], each.args[residual] is not None) for each in calls]
    assert done == [(True, False, False), (False, False, True), (True, True, False), (False, False, True)]
    assert [len(each.args[ahead]) for each in calls] == [4, 0, 0, 0]  # the second and third, while the sine is computed
    assert not [each for each in nodes if "rsqrt" in str(each.target) or "exp" in str(each.target)]
    torch.testing.assert_close(got, expected)


def test_many_rows_are_left_as_they_are(monkeypatch):
    expected, got, nodes = rewritten(9, monkeypatch)
    assert [each.target for each in nodes if "weight_only" in str(each.target)] == [PLAIN] * 4
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("normed", "gated", "added", "bits"), [(True, True, False, 4), (True, False, True, 8), (False, False, True, 4)]
)
def test_the_kernel_norms_gates_and_adds(dtype, normed, gated, added, bits):
    """Of inputs whose squares are no numbers of 16 bits, for blocks some of which are cut off."""
    kernel = pytest.importorskip("tracekit.fuse.kernels.weight_only_block")
    if not (torch.cuda.is_available() or kernel.plain._is_interpreted()):
        pytest.skip("neither a GPU nor the interpreter")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    options = {"dtype": dtype, "device": device}
    x = torch.randn(2, 320, **options) * (3000 if normed else 1)
    weights = kernel.plain.pack(torch.randn(34 if gated else 17, 320, **options) * 320**-0.5, bits, 64)
    gain = torch.rand(320, **options) + 0.5 if normed else None
    residual = torch.randn(2, 17, **options) if added else None
    arguments = (x, *weights, None, bits, gain, 1e-5, gated, residual)
    got, wanted = kernel.fused(*arguments).float(), kernel.reference(*arguments).float()
    assert (got - wanted).norm() < {torch.float32: 1e-5, torch.float16: 3e-3}.get(dtype, 3e-2) * wanted.norm()
