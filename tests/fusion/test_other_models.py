"""Kernels are planned where a module computes what their template does, and leave all other models as they are."""

import json

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from torch import nn

from tracekit.analyzers.core import TracekitError
from tracekit.analyzers.cost import hardware
from tracekit.analyzers.fuse import plan
from tracekit.apply import Subject, with_written_kernels
from tracekit.capture import OwnModel, graph_of, run_on_fake_tensors, steps
from tracekit.capture import complete as planned
from tracekit.fuse import run_kernels
from tracekit.run import Settings

H100 = hardware.find("h100")
SIZES = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "vocab_size": 64,
    "num_attention_heads": 4,
    "bos_token_id": 0,
    "eos_token_id": 0,
}


def templates(tmp_path, kind, architecture, workload="prefill", **more):
    """Return the templates of a modelled run of a small model."""
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": kind, "architectures": [architecture], **SIZES, **more})
    )
    settings = Settings(model=str(tmp_path), device="model", gpu="h100", dtype="bf16", seq_len=16, workload=workload)
    rows = plan(graph_of(steps.run(planned(settings), H100).recording), H100)
    return {row.template for row in rows if row.template}


def test_scaled_residuals_and_logits_have_no_kernel(tmp_path):
    kernels = templates(tmp_path, "granite", "GraniteForCausalLM", "train", residual_multiplier=0.5, logits_scaling=2.0)
    assert kernels == {"rotary", "gated_activation"}


def test_a_head_with_a_bias_has_no_fused_loss_and_parallel_layers_no_fused_norm(tmp_path):
    assert templates(tmp_path, "phi", "PhiForCausalLM", "train") == {"pointwise_chain", "rotary"}


def test_a_layer_norm_of_a_computed_weight_has_no_kernel(tmp_path):
    assert "add_norm" not in templates(tmp_path, "nemotron", "NemotronForCausalLM", num_key_value_heads=2)


def test_a_chain_in_the_model_itself_is_not_the_model(tmp_path):
    """Gemma-2 caps its logits where the whole model runs."""
    assert "pointwise_chain" not in templates(tmp_path, "gemma2", "Gemma2ForCausalLM", head_dim=16)


class Norm(nn.Module):
    def __init__(self, width, epsilon=0.1):
        super().__init__()
        self.weight, self.epsilon = nn.Parameter(torch.rand(width) + 0.5), epsilon

    def forward(self, x):
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.epsilon)).to(x.dtype)


RMSNorm = type("RMSNorm", (Norm,), {})


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x):
        q, k, v = (each(x).unflatten(-1, (2, -1)).transpose(1, 2) for each in (self.q, self.k, self.v))
        return self.o(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Rotating(Attention):
    """Rotates queries and keys in its own code."""

    def forward(self, x):
        q, k, v = (each(x).unflatten(-1, (2, -1)).transpose(1, 2) for each in (self.q, self.k, self.v))
        angle = torch.arange(x.shape[1]).outer(torch.ones(16))
        cos, sin, turned = angle.cos(), angle.sin(), []
        for each in (q, k):
            first, second = each.chunk(2, -1)
            turned.append(each * cos + self.other(first, second) * sin)
        return self.o(nn.functional.scaled_dot_product_attention(*turned, v).transpose(1, 2).flatten(2))

    def other(self, first, second):
        return torch.cat((-second, first), -1)


class Crossed(Rotating):
    """Cuts halves, and joins them as neighbours."""

    def other(self, first, second):
        return torch.stack((-second, first), -1).flatten(-2)


class MLP(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gate, self.up, self.down = (nn.Linear(width, width, bias=False) for _ in range(3))

    def forward(self, x):
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, width=32, mlp=MLP, attention=Attention):
        super().__init__()
        self.norm1, self.attention = RMSNorm(width), attention(width)
        self.norm2, self.mlp = RMSNorm(width), mlp(width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Pair(Block):
    """Returns more than its hidden states."""

    def forward(self, x):
        return super().forward(x), None


class Halved(Block):
    """Scales its residual."""

    def forward(self, x):
        x = x + 0.5 * self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Decoder(nn.Module):
    def __init__(self, block):
        super().__init__()
        self.blocks, self.norm = nn.ModuleList(block() for _ in range(2)), RMSNorm(32)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
            x = x[0] if isinstance(x, tuple) else x
        return self.norm(x)


class Twice(MLP):
    def forward(self, x):
        return super().forward(super().forward(x))


class Chain(nn.Module):
    def forward(self, x):
        return torch.tanh(torch.sigmoid(x) * 2.0)


class ChainAndNone(Chain):
    def forward(self, x):
        return super().forward(x), None


class Chains(nn.Module):
    kind: type[nn.Module] = Chain

    def __init__(self):
        super().__init__()
        self.first, self.chain, self.last = nn.Linear(64, 64), self.kind(), nn.Linear(64, 64)

    def forward(self, x):
        x = self.chain(self.first(x))
        return self.last(x[0] if isinstance(x, tuple) else x)


class Parts(Chains):
    kind = ChainAndNone


class Net(nn.Module):
    """A chain of pointwise ops beside a convolution in one module."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4, 3, 3))

    def forward(self, x):
        return torch.tanh(torch.sigmoid(nn.functional.conv2d(x, self.weight)))


def planned_for(model, x):
    return plan(graph_of(run_on_fake_tensors(OwnModel(model, {"x": x}), H100).recording), H100)


def test_layers_written_by_hand_compute_the_same(tmp_path):
    """Their list has a name of its own, their attention returns a tensor, and their norms another epsilon."""
    torch.manual_seed(0)
    model, x = Decoder(Block).eval(), torch.randn(2, 5, 32)
    rows = [row for row in planned_for(model, x) if row.template]
    assert {row.template for row in rows} == {"add_norm", "gated_activation", "packed_projections"}
    paths = [run_kernels.write_source(number, row, H100, tmp_path, {}) for number, row in enumerate(rows)]
    with torch.inference_mode():
        expected = model(x)
        run_kernels.put_in(model, paths)
        torch.testing.assert_close(model(x), expected, atol=1e-5, rtol=1e-4)
    assert all("forward" in vars(block) for block in model.blocks)


def test_layers_that_differ_from_the_template_have_none():
    assert "add_norm" not in {row.template for row in planned_for(Decoder(Halved), torch.randn(2, 5, 32))}


def test_modules_that_return_more_than_a_tensor_have_no_kernel():
    one, layers = (
        {row.template for row in planned_for(Decoder(each), torch.randn(2, 5, 32))} for each in (Block, Pair)
    )
    assert one - layers == {"add_norm"}
    two, parts = ({row.template for row in planned_for(each(), torch.randn(2, 64))} for each in (Chains, Parts))
    assert two - parts == {"pointwise_chain"}


def test_a_rotation_in_code_of_its_own_is_refused_when_its_kernel_is_put_in(tmp_path):
    model, x = Decoder(lambda: Block(attention=Rotating)).eval(), torch.randn(2, 5, 32)
    crossed = Decoder(lambda: Block(attention=Crossed)).eval()
    assert "rotary" not in {row.template for row in planned_for(crossed, x)}
    row = next(row for row in planned_for(model, x) if row.template == "rotary")
    path = run_kernels.write_source(1, row, H100, tmp_path, {})
    with pytest.raises(TracekitError, match="call fused"):
        run_kernels.put_in(model, [path])
    subject = Subject(model=model, settings=Settings(model="Decoder", gpu="h100"), inputs={"x": x})
    (caveat,) = with_written_kernels(subject, ()).caveats
    assert "rotary.py: No Rotating calls" in caveat


def test_a_module_that_is_an_mlp_twice_has_no_kernel():
    one, two = (planned_for(Decoder(lambda kind=kind: Block(32, kind)), torch.randn(2, 5, 32)) for kind in (MLP, Twice))
    assert "gated_activation" in {row.template for row in one}
    assert "gated_activation" not in {row.template for row in two}


def test_a_module_that_is_more_than_its_chain_has_no_kernel():
    assert {row.template for row in planned_for(Net(), torch.randn(1, 4, 8, 8))} <= {""}
