"""Triton's interpreter proves every template, which is put into small models and removed again."""

import importlib

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from tracekit.analyzers.fuse import LIBRARY
from tracekit.fuse import proof
from tracekit.fuse.catalogue import TEMPLATES
from tracekit.fuse.writing import Written, load, text

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


BOTH = ("add_norm", "gated_activation", "weight_only_product", "cross_entropy")
"""Templates that are also proved in bf16, to which the interpreter rounds as a GPU does."""


def template(name):
    return importlib.import_module(f"tracekit.fuse.kernels.{name}")


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_is_proved(name):
    kernel = template(name)
    dtypes = getattr(kernel, "DTYPES", (torch.float32, torch.bfloat16) if name in BOTH else (torch.float32,))
    checks = proof.prove(kernel, name, dtypes, trains=True, device=DEVICE)
    assert len(checks) >= 2
    assert proof.failed(checks) == []
    ran = name != "gelu_product" or DEVICE == "cuda"
    assert {each.passed for each in checks} == {True if ran else None}


def test_a_kernel_for_16_bits_is_proved_in_16_bits_and_refuses_others():
    """The library's epilogue approximates tanh, so that its result in fp32 is not that of the reference."""
    kernel = template("gelu_product")
    checks = proof.prove(kernel, "gelu_product", (torch.float32, torch.bfloat16), trains=False, device=DEVICE)
    assert checks and all(each.name.startswith("bfloat16") for each in checks)
    with pytest.raises(ValueError, match=r"the model is in torch\.float32: use bf16"):
        kernel.apply(gpt2().eval())


def test_a_wrong_kernel_fails_its_proof(monkeypatch):
    kernel = template("gated_activation")
    right = kernel.fused
    monkeypatch.setattr(kernel, "fused", lambda gate, up: right(gate, up) * 1.001)
    failed = proof.failed(proof.prove(kernel, "gated_activation", (torch.float32,), trains=False, device=DEVICE))
    assert len(failed) > 2


FORWARD = " + column, mask=inside, other=0.0).to(tl.float32)\n    tl.store(out_ptr"
STRIDES = (
    ("add_norm", "residual_ptr + row * residual_stride", "residual_ptr + row * x_stride"),
    ("gated_activation", "up_ptr + row * up_stride", "up_ptr + row * gate_stride"),
    ("gated_activation", f"up_stride{FORWARD}", f"gate_stride{FORWARD}"),
    ("rotary", "k_ptr += batch * k_batch_stride", "k_ptr += batch * q_batch_stride"),
    ("masked_softmax", "batch * mask_batch_stride", "batch * mask_query_stride"),
    ("embedding_position", "token_table.contiguous()", "token_table"),
    ("weight_only_product", "packed.contiguous(), scale.contiguous()", "packed.contiguous(), scale"),
)


@pytest.mark.parametrize(("name", "right", "wrong"), STRIDES)
def test_a_wrong_stride_fails_its_proof(tmp_path, name, right, wrong):
    """In the last kernel of the file that has the stride: the backward pass."""
    source = text(Written(name))
    at = source.rindex(right)
    path = tmp_path / "kernel.py"
    path.write_text(source[:at] + wrong + source[at + len(right) :])
    kernel = load(path, f"wrong_stride_of_{name}")
    cases = proof._cases(kernel, TEMPLATES[name], torch.float32, trains=True, device=DEVICE)
    assert any(proof._tried(*case).passed is False for case in cases)


def test_a_kernel_that_returns_its_reference_is_not_proved(monkeypatch):
    kernel = template("add_norm")
    monkeypatch.setattr(kernel, "fused", lambda *inputs: kernel.reference(*inputs))
    checks = proof.prove(kernel, "add_norm", (torch.float32,), trains=True, device=DEVICE)
    assert {each.passed for each in checks} == {None}


def test_a_wrong_gradient_fails_its_proof(monkeypatch):
    kernel = template("add_norm")
    right = kernel._AddNorm.backward
    wrong = staticmethod(lambda ctx, grad, summed: right(ctx, grad * 0.99, summed))
    monkeypatch.setattr(kernel._AddNorm, "backward", wrong)
    failed = proof.failed(proof.prove(kernel, "add_norm", (torch.float32,), trains=True, device=DEVICE))
    assert all("gradient" in each.name or each.name == "gradcheck" for each in failed)
    assert failed


def llama(**more):
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "vocab_size": 61}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}
    return LlamaForCausalLM(LlamaConfig(**sizes, **heads, **more)).to(DEVICE)


def gpt2(**more):
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(n_embd=24, n_layer=2, n_head=2, vocab_size=61, n_positions=32, **more)
    return GPT2LMHeadModel(config).to(DEVICE)


def qwen3(**more):
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "vocab_size": 61, "head_dim": 8}
    return Qwen3ForCausalLM(Qwen3Config(**sizes, num_attention_heads=4, num_key_value_heads=2, **more)).to(DEVICE)


OF_LLAMA = {"add_norm": {}, "rotary": {}, "gated_activation": {}, "packed_projections": {}, "cross_entropy": {}}
OF_QWEN3 = {
    "add_norm": {"LAYERS": ("Qwen3DecoderLayer",)},
    "rotary": {"LAYERS": ("Qwen3Attention",)},
    "gated_activation": {"LAYERS": ("Qwen3MLP",)},
    "packed_projections": {},
    "cross_entropy": {"LAYERS": ("Qwen3ForCausalLM",)},
}
NAMES = ("ln_1", "attn", "ln_2", "mlp")
OF_GPT2 = {
    "add_norm": {
        "CENTERED": True,
        "LAYERS": ("GPT2Block",),
        "NAMES": NAMES,
        "LIST": "h",
        "LAST_NORM": "ln_f",
        "EPSILON": 1e-5,
    },
    "pointwise_chain": {},
    "padded_projection": {},
    "cross_entropy": {"LAYERS": ("GPT2LMHeadModel",)},
}


@pytest.mark.slow
@pytest.mark.parametrize(("build", "kinds"), [(llama, OF_LLAMA), (qwen3, OF_QWEN3), (gpt2, OF_GPT2)])
def test_a_model_computes_the_same_with_all_kernels(tmp_path, build, kinds):
    model = build().eval()
    tokens = torch.randint(61, (2, 7), device=DEVICE)
    kernels = [template_with(tmp_path, name, constants) for name, constants in kinds.items()]
    with torch.inference_mode():
        before = model(tokens).logits
        for kernel in kernels:
            kernel.apply(model)
        cached = model(tokens, use_cache=True)
        longer = model(tokens[:, :1], past_key_values=cached.past_key_values).logits
        for kernel in kernels:
            kernel.remove(model)
        again = model(tokens, use_cache=True)
        expected = model(tokens[:, :1], past_key_values=again.past_key_values).logits
    torch.testing.assert_close(cached.logits, before, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(longer, expected, atol=1e-5, rtol=1e-4)
    assert not any("forward" in vars(module) for module in model.modules())
    torch.testing.assert_close(again.logits, before)


@pytest.mark.slow
@pytest.mark.parametrize(("build", "kinds"), [(llama, OF_LLAMA), (qwen3, OF_QWEN3), (gpt2, OF_GPT2)])
def test_a_model_trains_the_same_with_all_kernels(tmp_path, build, kinds):
    model = build(**({"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0} if build is gpt2 else {})).train()
    tokens = torch.randint(61, (2, 7), device=DEVICE)
    kernels = [template_with(tmp_path, *each) for each in kinds.items() if each[0] not in LIBRARY]

    def gradients():
        model.zero_grad()
        loss = model(tokens, labels=tokens, use_cache=False).loss
        loss.backward()
        return loss.detach(), [weight.grad.clone() for weight in model.parameters()]

    loss, expected = gradients()
    for kernel in kernels:
        kernel.apply(model)
    fused_loss, fused = gradients()
    torch.testing.assert_close(fused_loss, loss)
    for got, wanted in zip(fused, expected, strict=True):
        torch.testing.assert_close(got, wanted, atol=1e-6, rtol=1e-3)


def template_with(tmp_path, name, constants):
    path = tmp_path / f"{name}.py"
    path.write_text(text(Written(name, constants)))
    return load(path, f"written_{name}")


@pytest.mark.parametrize(
    ("name", "constants", "build", "other", "says"),
    [
        ("add_norm", {"EPSILON": 1e-6}, llama, {"rms_norm_eps": 1e-5}, "epsilon is 1e-06"),
        ("add_norm", OF_GPT2["add_norm"], gpt2, {"layer_norm_epsilon": 1e-6}, "epsilon is 1e-05"),
        ("gated_activation", {}, llama, {"hidden_act": "gelu_pytorch_tanh"}, "another activation"),
        ("pointwise_chain", {"LAYERS": ("GELUActivation",)}, gpt2, {"activation_function": "gelu"}, "else"),
        ("gelu_product", {}, gpt2, {"activation_function": "relu"}, "another activation"),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_model_that_computes_something_else_is_refused(tmp_path, name, constants, build, other, says, dtype):
    """Its classes have the same names, and what the kernel was written with is not theirs."""
    kernel = template_with(tmp_path, name, constants)
    changed = build(**other).to(dtype).eval()
    with pytest.raises(ValueError, match=says):
        kernel.apply(changed)
    if name != "pointwise_chain" and dtype in getattr(kernel, "DTYPES", (dtype,)):
        kernel.apply(build().to(dtype).eval())


@pytest.mark.parametrize("name", ["packed_projections", "padded_projection"])
def test_changed_weights_are_not_for_training(tmp_path, name):
    with pytest.raises(ValueError, match="inference"):
        template_with(tmp_path, name, {}).apply(llama().train())


def test_a_padded_head_stays_tied_to_the_embedding(tmp_path):
    model, kernel = gpt2().eval(), template_with(tmp_path, "padded_projection", {})
    kernel.apply(model)
    weight, _ = model.lm_head._padded
    assert weight.shape == (64, 24)  # 61 tokens
    assert model.lm_head.weight is model.transformer.wte.weight
    assert model.lm_head.weight.data_ptr() == weight.data_ptr()
    kernel.remove(model)
    assert "_padded" not in vars(model.lm_head)
    assert model.lm_head.weight.shape == (61, 24)


@pytest.mark.parametrize("size", [8, 4])
def test_a_part_of_each_head_may_rotate(size):
    kernel = template("rotary")
    q, k = torch.randn(1, 3, 5, 8, device=DEVICE), torch.randn(1, 1, 5, 8, device=DEVICE)
    _, _, cos, sin = kernel.example(torch.float32, DEVICE, rows=5, size=size)
    turned = kernel.reference(q[..., :size], k[..., :size], cos, sin)
    for got, part, x in zip(kernel._called(None, q, k, cos, sin), turned, (q, k), strict=True):
        torch.testing.assert_close(got, torch.cat((part, x[..., size:]), -1))


def test_a_kernel_that_fits_no_module_is_refused(tmp_path):
    for name in ("gated_activation", "pointwise_chain", "cross_entropy", "padded_projection"):
        with pytest.raises(ValueError, match=r"has no|is named"):
            template_with(tmp_path, name, {}).apply(torch.nn.Sequential(torch.nn.GELU()).eval())


def test_rotary_leaves_other_models_alone(tmp_path):
    from transformers.models.llama import modeling_llama

    before = modeling_llama.apply_rotary_pos_emb
    template_with(tmp_path, "rotary", {}).apply(llama())
    assert modeling_llama.apply_rotary_pos_emb is before
