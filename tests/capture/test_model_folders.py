"""Folders with a config.json that is wrong or malicious."""

import json
import pickle
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from torch._subclasses.fake_tensor import FakeTensorMode

from tracekit.analyzers.core import InputError
from tracekit.capture import kind_of, models
from tracekit.cli import main
from tracekit.run import model_errors

GPT2 = {"model_type": "gpt2", "n_embd": 32, "n_head": 4, "n_layer": 2, "n_positions": 64, "vocab_size": 100}
WHISPER = {
    "model_type": "whisper",
    "architectures": ["WhisperForConditionalGeneration"],
    **dict.fromkeys(("encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 64),
    **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"), 0),
    "d_model": 32,
    "vocab_size": 100,
    "num_mel_bins": 16,
    "max_source_positions": 30,
    "max_target_positions": 40,
}
MAMBA = {
    "model_type": "mamba",
    "architectures": ["MambaForCausalLM"],
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "vocab_size": 100,
    "state_size": 8,
}
OWN_CODE = """
open("EXECUTED", "w").close()
from transformers import PretrainedConfig, PreTrainedModel
class C(PretrainedConfig):
    model_type = "evil"
class M(PreTrainedModel):
    config_class = C
"""
AUTO_MAP = {"AutoConfig": "evil.C", "AutoModel": "evil.M", "AutoModelForCausalLM": "evil.M"}


def folder_of(path: Path, config: object) -> Path:
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    return path


def profiled(folder: Path, *options: str, output: Path | None = None, gpu: str = "t4"):
    words = ["profile", "--model", str(folder), "--gpu", gpu, "--device", "model", "--seq-len", "8", *options]
    return CliRunner().invoke(main, [*words, "-o", str(output or folder.parent / "run")])


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ([], "model_type"),
        ("a text", "model_type"),
        (5, "cannot be read"),
        ({"vocab_size": 5}, "model_type"),
        ({"model_type": 5}, "cannot be read"),
        (GPT2 | {"n_embd": "many"}, "expected int, got str"),
        (GPT2 | {"vocab_size": None}, "expected int, got NoneType"),
        (GPT2 | {"n_embd": -8}, "negative dimension"),
        (GPT2 | {"n_layer": -1}, "cannot run prefill"),
        (GPT2 | {"n_head": 5}, "divisible"),
        (GPT2 | {"dtype": "nonsense"}, "nonsense"),
        (GPT2 | {"architectures": "GPT2LMHeadModel"}, "not a list of class names"),
        (GPT2 | {"architectures": [1]}, "not a list of class names"),
        (GPT2 | {"architectures": ["AutoTokenizer"]}, "AutoTokenizer is not a model"),
        (GPT2 | {"architectures": ["pipeline"]}, "pipeline is not a model"),
        (GPT2 | {"architectures": ["BertModel"]}, "not a model of type 'gpt2'"),
        ({"model_type": "llava"}, "cannot make the inputs of models of type 'llava'"),
    ],
)
def test_wrong_values_are_explained(tmp_path, config, said):
    done = profiled(folder_of(tmp_path / "model", config))
    assert done.exit_code == 1
    assert said in done.stderr and "bug of tracekit" not in done.stderr, done.stderr


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe\x00"])
def test_a_config_that_is_no_json_is_explained(tmp_path, content):
    (tmp_path / "config.json").write_bytes(content)
    done = profiled(tmp_path, output=tmp_path / "run")
    assert done.exit_code == 1
    assert "config.json" in done.stderr and "bug of tracekit" not in done.stderr


@pytest.mark.parametrize(("model_type", "status"), [("evil", 1), ("gpt2", 0)])
def test_code_of_a_model_never_runs_and_stdin_is_never_read(tmp_path, monkeypatch, model_type, status):
    """transformers has no type "evil"; for "gpt2" its own classes are used."""
    config = GPT2 | {"model_type": model_type, "auto_map": AUTO_MAP, "architectures": ["M"]}
    folder = folder_of(tmp_path / "model", config)
    (folder / "evil.py").write_text(OWN_CODE)
    monkeypatch.chdir(tmp_path)
    words = ["profile", "--model", "model", "--gpu", "t4", "--device", "model", "--seq-len", "8", "-o", "run"]
    done = CliRunner().invoke(main, words, input="y\n" * 9)
    assert done.exit_code == status, done.output
    assert not (tmp_path / "EXECUTED").exists()
    assert "[y/N]" not in done.output
    assert status == 0 or "needs its own code" in done.stderr


class _Runs:
    def __reduce__(self):
        return Path.touch, (Path("EXECUTED"),)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt"])
def test_pickled_weights_are_not_loaded(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    folder = folder_of(tmp_path / "model", GPT2 | {"architectures": ["GPT2LMHeadModel"]})
    (folder / name).write_bytes(pickle.dumps(_Runs()))
    with pytest.raises(InputError, match="pickled") as caught:
        models.build(models.find(str(folder)), weights="pretrained")
    assert "safetensors" in caught.value.why and "save_pretrained" in caught.value.hint
    assert not Path("EXECUTED").exists()


@pytest.mark.parametrize("model_type", ["vit", "dinov2"])
def test_images_are_no_tokens_whatever_else_the_configuration_names(tmp_path, model_type):
    folder = folder_of(tmp_path / "model", {"model_type": model_type, "vocab_size": 100})
    assert kind_of(models.load_config(models.find(str(folder)))) == "a model of images"


@pytest.mark.parametrize("workload", ["prefill", "decode", "generate", "train"])
def test_whisper_takes_spectrograms_and_a_prompt(tmp_path, workload):
    folder = folder_of(tmp_path / "model", WHISPER)
    assert kind_of(models.load_config(models.find(str(folder)))) == "a model of speech"
    done = profiled(folder, "--workload", workload, "--new-tokens", "3")
    assert done.exit_code == 0, done.output
    assert "WhisperDecoderLayer" in (tmp_path / "run" / "analysis.json").read_text()


@pytest.mark.parametrize(("workload", "status"), [("prefill", 0), ("train", 0), ("decode", 1), ("generate", 1)])
def test_mamba_runs_without_fused_attention_and_without_a_cache(tmp_path, workload, status):
    done = profiled(folder_of(tmp_path / "model", MAMBA), "--workload", workload)
    assert done.exit_code == status, done.output
    if status:
        assert "a state in place of a KV cache" in done.stderr and "It can run: prefill, train." in done.stderr
    else:
        settings = json.loads((tmp_path / "run" / "run.json").read_text())["settings"]
        assert settings["attention"] == "eager"


def test_flash_attention_is_refused_where_a_model_calls_none(tmp_path):
    done = profiled(folder_of(tmp_path / "model", MAMBA), "--attention", "flash", gpu="a100")
    assert done.exit_code == 1 and "have no flash attention" in done.stderr


def test_code_that_reads_values_cannot_be_modelled():
    with pytest.raises(InputError) as refused, model_errors("a model", "prefill", bundled=True), FakeTensorMode():
        torch.ones(3).sum().item()
    assert "Add --device cpu" in refused.value.hint
