"""Subjects on the CPU: what changes, what is shared, and that outputs stay the same."""

from pathlib import Path

import pytest
import torch
from msgspec.structs import replace
from tiny_models import write_model

from tracekit.advise import parse
from tracekit.analyzers.core import InputError, TracekitError
from tracekit.apply import SEED, Subject, Training, prepare
from tracekit.apply import quantized as trained_models
from tracekit.capture import NoRanges, complete, models
from tracekit.measure.side_by_side import output_difference
from tracekit.run import Settings


@pytest.fixture
def subject(tmp_path):
    def build(kind: str, **options) -> Subject:
        write_model(tmp_path, kind)
        length = {} if kind == "vit" else {"seq_len": 16}
        settings = complete(
            Settings(model=str(tmp_path), device="cpu", dtype="fp32", attention="eager", **length, **options)
        )
        return Subject(model=models.build_for(settings), settings=settings)

    return build


def output(subject: Subject) -> torch.Tensor:
    with subject.numerics():
        step = prepare(subject)
        torch.manual_seed(SEED)
        return step(NoRanges())


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
@pytest.mark.parametrize("workload", ["decode", "generate"])
def test_a_static_cache_gives_what_a_growing_one_does(subject, kind, workload):
    plain = subject(kind, workload=workload, new_tokens=4)
    static = parse("static-cache").apply(plain)
    step = prepare(static)
    first, again = step(NoRanges()), step(NoRanges())
    torch.testing.assert_close(first, output(plain))
    torch.testing.assert_close(again, first)


@pytest.mark.parametrize("kind", ["gpt2", "llama", "bert", "vit", "t5"])
def test_attention_by_sdpa_gives_the_same(subject, kind):
    plain = subject(kind)
    fused = parse("sdpa").apply(plain)
    assert fused.model.config._attn_implementation == "sdpa"
    assert plain.model.config._attn_implementation == "eager"
    torch.testing.assert_close(output(fused), output(plain), atol=1e-5, rtol=1e-4)


def test_half_precision_is_of_the_same_weights(subject):
    plain = subject("llama")
    half = parse("half-precision:bf16").apply(plain)
    assert {weight.dtype for weight in half.model.parameters()} == {torch.bfloat16}
    assert {weight.dtype for weight in plain.model.parameters()} == {torch.float32}
    assert half.model.model.rotary_emb.inv_freq.dtype == torch.float32
    difference = output_difference(output(plain), output(half), logits=True)
    assert 0 < difference.relative < 0.02
    assert difference.kl < 1e-3


def test_tied_weights_stay_tied_and_shared_ones_are_not_copied(subject):
    plain = subject("gpt2")
    half, twin = plain.with_dtype("bf16").model, plain.with_twin().model
    assert half.lm_head.weight is half.transformer.wte.weight
    assert twin.lm_head.weight is plain.model.lm_head.weight
    assert twin.lm_head is not plain.model.lm_head


def test_what_trains_has_weights_of_its_own(subject):
    plain = subject("llama", workload="train")
    before = plain.model.lm_head.weight.detach().clone()
    output(parse("fused-optimizer").apply(plain))
    torch.testing.assert_close(plain.model.lm_head.weight, before, rtol=0, atol=0)


def test_training_with_checkpoints_has_the_same_loss(subject):
    plain = subject("bert", workload="train")
    checkpointed = parse("gradient-checkpointing").apply(plain)
    assert checkpointed.model.is_gradient_checkpointing
    torch.testing.assert_close(output(checkpointed), output(plain))


def test_written_out_activations_are_replaced_by_the_same_function(subject):
    plain = subject("gpt2")
    fused = parse("fused-kernels").apply(plain)
    assert type(fused.model.transformer.h[0].mlp.act) is torch.nn.GELU
    torch.testing.assert_close(output(fused), output(plain))


def test_several_are_applied_together(subject):
    both = parse("static-cache+half-precision:bf16").apply(subject("llama", workload="decode"))
    assert both.static_cache
    assert both.settings.dtype == "bf16"
    assert output(both).dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("name", "workload"),
    [
        ("cuda-graphs", "prefill"),
        ("tf32", "prefill"),
        ("static-cache", "prefill"),
        ("gradient-checkpointing", "decode"),
        ("fused-optimizer", "prefill"),
        ("nf4", "train"),
        ("paged-kv", "decode"),
        ("speculative-decoding", "prefill"),
    ],
)
def test_what_cannot_be_applied_says_why(subject, name, workload):
    with pytest.raises(TracekitError) as refused:
        parse(name).apply(subject("llama", workload=workload))
    assert refused.value.why or refused.value.hint


def test_fp8_rows_of_fp16_weights_are_refused_before_torchao_asserts(subject):
    with pytest.raises(TracekitError, match="cannot be applied") as refused:
        parse("fp8-dynamic").apply(subject("llama").with_dtype("fp16"))
    assert "per-tensor" in refused.value.why


def test_a_static_cache_needs_a_decoder_and_its_whole_window(subject):
    t5 = subject("t5", workload="decode")
    with pytest.raises(TracekitError, match="decoders"):
        prepare(parse("static-cache").apply(t5))
    llama = subject("llama", workload="decode")
    llama.model.config.sliding_window = 8
    with pytest.raises(TracekitError, match="window of 8"):
        prepare(parse("static-cache").apply(llama))


def test_weights_are_found_in_what_they_are_packed_in(subject):
    quantized = pytest.importorskip("torchao.quantization")
    assert quantized
    plain = subject("llama", workload="decode")
    packed = parse("int8-weight-only").apply(plain)
    difference = output_difference(output(plain), output(packed), logits=True)
    assert 0 < difference.relative < 0.05


@pytest.mark.parametrize("name", ["packed-int4", "packed-int8", "awq", "smoothquant"])
@pytest.mark.parametrize("model", ["llama", "gpt2"])
def test_own_formats_are_applied_to_the_live_model(subject, model, name):
    plain = subject(model, workload="decode")
    packed = parse(name).apply(plain)
    kinds = {type(layer).__name__ for layer in packed.model.modules()}
    assert kinds & {"WeightOnlyLinear", "EightBitLinear"}
    assert not kinds & {type(layer).__name__ for layer in plain.model.modules()} & {"WeightOnlyLinear"}
    difference = output_difference(output(plain), output(packed), logits=True)
    assert 0 < difference.relative < 0.3
    with pytest.raises(TracekitError, match="cannot be trained"):
        parse(name).apply(subject(model, workload="train"))


@pytest.mark.parametrize("to", ["none", "int4", "int8", "awq", "smoothquant"])
def test_qlora_trains_adapters_beside_weights_of_each_format(subject, to):
    plain = subject("llama", workload="train")
    adapted = Training("lora", to).applied(plain)
    assert {name.rpartition(".")[2] for name, each in adapted.model.named_parameters() if each.requires_grad} == {
        "lora_a",
        "lora_b",
    }
    before = {name: each.detach().clone() for name, each in adapted.model.named_parameters() if "lora_b" in name}
    output(adapted)
    assert all(not torch.equal(adapted.model.get_parameter(name), each) for name, each in before.items())
    with pytest.raises(TracekitError, match="only be trained"):
        Training("lora", to).applied(subject("llama"))


WINDOWS = list(torch.tensor([7, 3, 9, 1, 5, 2, 8, 4] * 40).split(32))


def distance(one, other):
    """Return the divergence of the next tokens' probabilities in nats."""
    with torch.no_grad():
        p, q = (each.model(torch.stack(WINDOWS)).logits.float().log_softmax(-1) for each in (one, other))
    return float(torch.nn.functional.kl_div(q, p, log_target=True, reduction="none").sum(-1).mean())


@pytest.mark.parametrize("what", ["lora", True])
def test_training_gives_back_what_a_format_has_lost_and_leaves_the_run_as_it_is(subject, what, monkeypatch):
    monkeypatch.setitem(trained_models._RATES, what, 3e-3)  # weights are random and few
    plain = subject("llama", workload="decode")
    before = {name: each.clone() for name, each in plain.model.state_dict().items()}
    untrained, trained = (Training(what, "int4").applied(plain, lambda _: WINDOWS, steps) for steps in (1, 60))
    assert distance(plain, trained) < 0.8 * distance(plain, untrained)
    kinds = {type(layer).__name__ for layer in trained.model.modules()}
    assert "WeightOnlyLinear" in kinds and "FakeQuantizedLinear" not in kinds
    assert all(torch.equal(each, before[name]) for name, each in plain.model.state_dict().items())
    with pytest.raises(InputError, match="Nothing to train with"):
        Training(what, "int4").applied(plain, lambda _: [], 30)


def test_batches_are_as_large_as_asked(subject):
    grown = parse("batching:4").apply(subject("gpt2", workload="decode"))
    assert output(grown).shape[0] == 4


def test_a_check_is_of_the_drafted_tokens_and_the_next(subject):
    plain = subject("llama", workload="decode")
    check = parse("speculative-decoding:0.5").apply(plain)
    assert check.tokens_a_step == 1 + 0.5 + 0.25 + 0.125 + 0.0625
    outputs = output(check)
    assert outputs.shape[1] == 5
    torch.testing.assert_close(outputs[:, :1], output(plain), atol=1e-5, rtol=1e-4)


def test_difference_by_hand():
    before, after = torch.tensor([[0.0, 2.0]]), torch.tensor([[3.0, 2.0]])
    difference = output_difference(before, after, logits=True)
    p, q = torch.softmax(before, -1), torch.softmax(after, -1)
    assert difference.max_abs == 3.0
    assert difference.relative == pytest.approx(1.5)
    assert difference.kl == pytest.approx(float((p * (p / q).log()).sum()), rel=1e-5)
    assert difference.agreement == 0.0


def test_subjects_do_not_change(subject):
    plain = subject("gpt2")
    assert replace(plain) == plain
    assert Path(plain.settings.model).is_dir()


def test_mixed_precision_casts_the_forward_pass_of_training_and_keeps_the_weights(subject):
    plain = subject("llama", workload="train")
    mixed = parse("mixed-precision").apply(plain)
    seen: set[torch.dtype] = set()
    mixed.model.lm_head.register_forward_hook(lambda *call: seen.add(call[-1].dtype))
    torch.testing.assert_close(output(mixed), output(plain), atol=0.05, rtol=0.05)
    assert seen == {torch.bfloat16}
    assert {weight.dtype for weight in mixed.model.parameters()} == {torch.float32}
    for other in (subject("llama"), plain.with_dtype("bf16")):
        with pytest.raises(TracekitError, match="cannot be applied"):
            parse("mixed-precision").apply(other)


def test_gradients_are_scaled_for_autocast_to_fp16_only(subject):
    largest = {}
    for autocast in ("bf16", "fp16"):
        training = replace(subject("llama", workload="train"), autocast=autocast)
        weight, gradients = training.model.lm_head.weight, []
        before = weight.detach().clone()
        weight.register_hook(gradients.append)
        output(training)
        largest[autocast] = gradients[0].abs().max().item()
        assert not torch.equal(weight, before) and weight.isfinite().all()
    assert largest["fp16"] > 1000 * largest["bf16"]
