"""What a step runs: its phases, and the tensors that reach the model."""

from pathlib import Path

import pytest
import torch
from tiny_models import write_model
from torch._subclasses.fake_tensor import FakeTensorMode

from tracekit.analyzers.core import InputError
from tracekit.capture import NoRanges, models, workloads
from tracekit.run import Settings


class Seen(NoRanges):
    """An emitter that records its calls."""

    def __init__(self):
        self.names = []

    def push(self, name):
        self.names.append(name)


def settings_for(model, workload, **options):
    settings = Settings(**{"model": model, "workload": workload, "device": "cpu", "dtype": "fp32", **options})
    return workloads.complete(settings, models.load_config(models.find(model)))


def run(settings, steps=1):
    """Return the model, its step, the phases of each step, and the arguments of each call of the model."""
    model = models.build_for(settings)
    step = workloads.prepare(model, settings)
    calls, phases = [], []
    hook = model.register_forward_pre_hook(lambda _, __, kwargs: calls.append(shapes(kwargs)), with_kwargs=True)
    for _ in range(steps):
        seen = Seen()
        step(seen)
        phases.append(seen.names)
    hook.remove()
    return model, phases, calls


def shapes(kwargs):
    shapes = {name: tuple(value.shape) for name, value in kwargs.items() if isinstance(value, torch.Tensor)}
    if "past_key_values" in kwargs:
        shapes["cached"] = kwargs["past_key_values"].get_seq_length()
    return shapes


def test_prefill_is_one_forward_over_the_prompt(tiny_gpt2):
    _, phases, calls = run(settings_for(tiny_gpt2, "prefill", batch_size=2, seq_len=16))
    assert phases == [["phase: prefill"]]
    assert calls == [{"input_ids": (2, 16)}]


def test_every_decode_step_starts_from_the_same_cache(tiny_gpt2):
    _, phases, calls = run(settings_for(tiny_gpt2, "decode", batch_size=2, seq_len=16), steps=3)
    assert phases == [["phase: decode"]] * 3
    assert calls == [{"input_ids": (2, 1), "cached": 16}] * 3


def test_generate_makes_the_first_token_by_prefill_and_the_others_by_decode(tiny_gpt2):
    _, phases, calls = run(settings_for(tiny_gpt2, "generate", seq_len=16, new_tokens=4), steps=2)
    assert phases == [["phase: prefill", "phase: decode", "phase: decode", "phase: decode"]] * 2
    assert [call.get("cached", 0) for call in calls] == [0, 16, 17, 18] * 2


def test_generate_makes_the_tokens_that_transformers_makes(tiny_gpt2):
    settings = settings_for(tiny_gpt2, "generate", seq_len=8, new_tokens=5)
    model = models.build_for(settings)
    torch.nn.init.normal_(model.transformer.wte.weight)
    torch.manual_seed(7)
    step = workloads.prepare(model, settings)
    torch.manual_seed(7)
    prompt = torch.randint(100, (1, 8))
    fed = []
    model.register_forward_pre_hook(lambda _, __, kwargs: fed.append(kwargs["input_ids"]), with_kwargs=True)
    step(NoRanges())
    with torch.no_grad():
        expected = model.generate(
            prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=5, min_new_tokens=5, do_sample=False
        )
    assert torch.equal(torch.cat(fed[:5], 1)[0], expected[0, :12])


def test_train_changes_the_weights(tiny_gpt2):
    settings = settings_for(tiny_gpt2, "train", seq_len=16)
    model = models.build_for(settings)
    before = model.transformer.h[1].attn.c_attn.weight.clone()
    seen = Seen()
    workloads.prepare(model, settings)(seen)
    assert seen.names == ["phase: forward", "phase: backward", "phase: optimizer"]
    assert not torch.equal(before, model.transformer.h[1].attn.c_attn.weight)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_an_encoder_decoder_decodes_on_both_caches():
    settings = settings_for("t5-small", "decode", seq_len=24, batch_size=2)
    with FakeTensorMode():
        _, _, calls = run(settings, steps=2)
    assert calls == [{"decoder_input_ids": (2, 1), "cached": 24}] * 2


def test_images():
    settings = settings_for("vit", "prefill", batch_size=3)
    assert settings.seq_len == 0
    with FakeTensorMode():
        _, _, calls = run(settings)
    assert calls == [{"pixel_values": (3, 3, 224, 224)}]


@pytest.mark.parametrize("name", ["gpt2", "bert", "llama", "t5", "vit"])
@pytest.mark.parametrize("workload", workloads.WORKLOADS)
def test_workloads_run_on_fake_tensors(name, workload, tmp_path):
    model = str(write_model(tmp_path / name, name))
    config = models.load_config(models.find(model))
    settings = Settings(model=model, workload=workload, device="model", seq_len=0, new_tokens=2, dtype="bf16")
    if workloads.kind_of(config) not in workloads.WORKLOADS[workload].kinds:
        with pytest.raises(InputError, match="It can run: prefill, train"):
            workloads.complete(settings, config)
        return
    settings = workloads.complete(settings, config)
    with FakeTensorMode():
        seen = Seen()
        workloads.prepare(models.build_for(settings), settings)(seen)
    assert {name.removeprefix("phase: ") for name in seen.names} == set(workloads.WORKLOADS[workload].phases)


@pytest.mark.parametrize(("workload", "longest"), [("prefill", 64), ("train", 64), ("decode", 63), ("generate", 33)])
def test_the_sequence_fits_the_positions(tiny_gpt2, workload, longest):
    assert settings_for(tiny_gpt2, workload).seq_len == longest
    assert settings_for(tiny_gpt2, workload, seq_len=longest).seq_len == longest
    with pytest.raises(InputError, match=f"Give --seq-len {longest} or less"):
        settings_for(tiny_gpt2, workload, seq_len=longest + 1)


def test_the_default_sequence_is_512():
    assert settings_for("gpt2", "prefill").seq_len == 512
    assert settings_for("t5-small", "decode").seq_len == 512


def test_too_many_new_tokens(tiny_gpt2):
    with pytest.raises(InputError, match="fewer --new-tokens"):
        settings_for(tiny_gpt2, "generate", new_tokens=65)


def test_a_model_without_a_loss_cannot_train(tiny_gpt2):
    config = Path(tiny_gpt2) / "config.json"
    config.write_text(config.read_text().replace("GPT2LMHeadModel", "GPT2Model"))
    settings = settings_for(tiny_gpt2, "prefill").changed(workload="train")
    with pytest.raises(InputError, match="has no loss"):
        workloads.prepare(models.build_for(settings), settings)
