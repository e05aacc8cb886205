"""Models by name, checked against the parameter counts that their publishers state."""

import sys

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from tracekit.analyzers.core import InputError, MissingPackageError, UnknownNameError
from tracekit.capture import NoRanges, complete, kind_of, models
from tracekit.capture.model_kinds import model_class
from tracekit.capture.workloads import prepare
from tracekit.run import Settings

PUBLISHED_PARAMETERS = {
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "distilgpt2": 81_912_576,
    "bert-base-uncased": 109_482_240,
    "bert-large-uncased": 335_141_888,
    "mistral-7b": 7_241_732_096,
    "mistral-7b-v0.3": 7_248_023_552,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "llama-3.1-8b": 8_030_261_248,
    "tinyllama-1.1b": 1_100_048_384,
    "qwen2-0.5b": 494_032_768,
    "qwen2-1.5b": 1_543_714_304,
    "qwen2-7b": 7_615_616_512,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-14b": 14_770_033_664,
    "t5-small": 60_506_624,
    "t5-base": 222_903_552,
    "t5-large": 737_668_096,
    "vit-base-patch16-224": 86_567_656,
    "vit-large-patch16-224": 304_326_632,
}


def test_every_bundled_model_has_a_published_count_and_can_be_described():
    """benchmarks/every_model.py builds and profiles each of them."""
    for spec in models.bundled():
        assert spec.parameters or spec.name in PUBLISHED_PARAMETERS, spec.name
        config = models.load_config(spec)
        if kind_of(config) != "a diffusion model":  # their package is an extra
            assert model_class(config, spec.training_class)


@pytest.mark.parametrize("name", ["dit-xl-2-512", "sdxl-unet"])
def test_a_diffusion_model_takes_a_step_of_denoising(name):
    pytest.importorskip("diffusers")
    settings = complete(Settings(model=name, gpu="t4", device="model", batch_size=2))
    with FakeTensorMode():
        model = models.build_for(settings)
        assert sum(parameter.numel() for parameter in model.parameters()) == models.find(name).parameters
        output = prepare(model, settings)(NoRanges())
    assert output.shape[0] == 2 and output.shape[-2:] == (model.config.sample_size,) * 2
    with pytest.raises(InputError, match="no decode"):
        complete(Settings(model=name, gpu="t4", device="model", workload="decode"))


def test_a_diffusion_model_says_what_it_needs(monkeypatch):
    monkeypatch.setitem(sys.modules, "diffusers", None)
    with pytest.raises(MissingPackageError, match="diffusers"):
        models.build_for(complete(Settings(model="sdxl", gpu="t4", device="model")))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("resnet-50", "a model of images"),
        ("clip-vit-base-patch32", "a model of images and text"),
        ("wav2vec2-base-960h", "a model of sound"),
        ("qwen3-0.6b", "a decoder"),
    ],
)
def test_a_model_has_its_inputs(name, kind):
    spec = models.find(name)
    settings = complete(
        Settings(model=name, gpu="t4", device="model", seq_len=0 if "qwen" not in name else 8, batch_size=2)
    )
    with FakeTensorMode():
        model = models.build(spec, dtype=settings.dtype)
        assert kind_of(model.config) == kind
        assert sum(parameter.numel() for parameter in model.parameters()) == spec.parameters
        output = prepare(model, settings)(NoRanges())
    assert output.shape[0] == 2


@pytest.mark.parametrize("name", PUBLISHED_PARAMETERS)
def test_parameters_are_as_published(name):
    with FakeTensorMode():
        model = models.build(models.find(name), dtype="bf16")
    assert sum(parameter.numel() for parameter in model.parameters()) == PUBLISHED_PARAMETERS[name]
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("bert", "bert-base-uncased"),
        ("BERT-base", "bert-base-uncased"),
        ("mistral-7b-v0.1", "mistral-7b"),
        ("llama-1b", "llama-3.2-1b"),
        ("llama-3b", "llama-3.2-3b"),
        ("llama-8b", "llama-3.1-8b"),
        ("vit", "vit-base-patch16-224"),
        ("Qwen/Qwen2-0.5B", "qwen2-0.5b"),
    ],
)
def test_aliases_and_hub_names_find_the_bundled_model(asked, name):
    assert models.find(asked).name == name


def test_no_name_means_two_models():
    names = [name for spec in models.bundled() for name in spec.names]
    assert len(names) == len(set(names)) + sum(spec.name == spec.location.lower() for spec in models.bundled())


@pytest.mark.parametrize(
    ("asked", "nearest"), [("gtp2", "gpt2"), ("mistral7b", "mistral-7b"), ("lama-8b", "llama-3.1-8b")]
)
def test_an_unknown_name_is_answered_with_the_nearest(asked, nearest):
    with pytest.raises(UnknownNameError) as caught:
        models.find(asked)
    assert asked in caught.value.what
    assert f"Nearest: {nearest}" in caught.value.hint


def test_a_name_like_no_other_is_answered_with_all():
    with pytest.raises(UnknownNameError) as caught:
        models.find("zzzzzzzz")
    assert "bert-base-uncased" in caught.value.hint


def test_a_hub_name_is_left_to_the_hub():
    assert models.find("someone/something").origin == "hub"


def test_a_directory(tiny_gpt2):
    spec = models.find(tiny_gpt2)
    model = models.build(spec)
    assert (spec.name, spec.origin, type(model).__name__) == ("tiny-gpt2", "directory", "GPT2LMHeadModel")
    assert not model.training
    assert all(torch.isfinite(parameter).all() for parameter in model.parameters())


def test_a_directory_without_a_model(tmp_path):
    with pytest.raises(InputError, match=r"config\.json"):
        models.find(str(tmp_path))


def test_a_directory_with_a_broken_configuration(tmp_path):
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(InputError, match="cannot be read"):
        models.load_config(models.find(str(tmp_path)))


def test_pretrained_weights_are_loaded(tiny_gpt2):
    original = models.build(models.find(tiny_gpt2))
    torch.nn.init.constant_(original.transformer.wpe.weight, 3.5)
    original.save_pretrained(tiny_gpt2)
    loaded = models.build(models.find(tiny_gpt2), weights="pretrained", dtype="bf16")
    assert (loaded.transformer.wpe.weight == 3.5).all()
    assert loaded.transformer.wpe.weight.dtype == torch.bfloat16


def test_missing_weights_are_explained(tiny_gpt2):
    with pytest.raises(InputError, match="weights of tiny-gpt2 cannot be loaded"):
        models.build(models.find(tiny_gpt2), weights="pretrained")


def test_training_uses_a_class_with_a_loss():
    with FakeTensorMode():
        model = models.build(models.find("bert"), training=True)
    assert type(model).__name__ == "BertForMaskedLM"
    assert model.training


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_attention(tiny_gpt2, attention):
    assert models.build(models.find(tiny_gpt2), attention=attention).config._attn_implementation == attention


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("gpt2", "a decoder"),
        ("mistral-7b", "a decoder"),
        ("bert", "an encoder"),
        ("t5-small", "an encoder-decoder"),
        ("vit", "a model of images"),
    ],
)
def test_kinds(name, kind):
    assert kind_of(models.load_config(models.find(name))) == kind
