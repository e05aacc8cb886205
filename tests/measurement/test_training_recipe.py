"""The recipe of the small model: its texts, the n-gram model beside it, and a training of seconds."""

import json
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tracekit.capture import models

EXAMPLES = Path(__file__).parents[2] / "examples"
RECIPE = EXAMPLES / "studies" / "quality"


@pytest.fixture(autouse=True)
def recipe(monkeypatch):
    monkeypatch.syspath_prepend(str(RECIPE))


@pytest.fixture
def package(tmp_path):
    """Return a folder of 200 different files, and a copy of each."""
    folder = tmp_path / "package"
    folder.mkdir()
    for index in range(200):
        lines = [f"value_{index}_{line} = function_{line % 7}({index * line})" for line in range(60)]
        for name in (f"file_{index}.py", f"copy_{index}.py"):
            (folder / name).write_text("\n".join(lines))
    return folder


def test_texts_are_split_by_name_and_copies_are_left_out(package):
    from package_texts import package_texts

    texts = package_texts(10_000_000, [package])
    assert len(texts.train) + len(texts.held_out) == 200
    assert 0 < len(texts.held_out) < 40
    assert len(set(texts.train) | set(texts.held_out)) == 200
    assert package_texts(10_000_000, [package]) == texts
    assert len(package_texts(5_000, [package]).train) < 5
    assert texts.shipped == ""  # this is not the standard library


def test_the_ngram_model_gives_probabilities():
    from ngram import ngram_loss

    train = np.random.default_rng(0).integers(0, 5, 300)
    after = [np.array([*train[:4], token]) for token in range(5)]
    assert sum(np.exp(-ngram_loss(train, each, 5, n=5)) for each in after) == pytest.approx(1)
    repeated = np.tile(np.arange(5), 200)
    assert ngram_loss(repeated, repeated, 5, n=3) < 0.1 < np.log(5) / 2 < ngram_loss(train, train, 5, n=1)


def test_a_tiny_training_writes_models_in_8_bits(package, tmp_path):
    from train import train_models
    from transformers import AutoModelForCausalLM, AutoTokenizer

    out = tmp_path / "models"
    reached = train_models(out, "cpu", minutes=0.08, tiny=True, roots=(package,))
    assert json.loads((out / "training.json").read_text())["seed"] == reached["seed"]
    tokenizer = AutoTokenizer.from_pretrained(out / "small-llama")
    assert tokenizer.decode(tokenizer("value_1 = 2").input_ids) == "value_1 = 2"
    for name in ("small-llama", "draft"):
        written = AutoModelForCausalLM.from_pretrained(out / "unrounded" / name)
        opened = models.build(models.find(str(out / name)), weights="pretrained")
        assert opened.config.vocab_size == len(tokenizer)
        for one, other in zip(written.parameters(), opened.parameters(), strict=True):
            torch.testing.assert_close(one.float(), other, atol=one.abs().max().item() / 100, rtol=0)
        assert reached[name]["steps"] >= 20 and reached[name]["perplexity"] < 530  # of 512 tokens
        assert reached[name]["in_8_bits"]["perplexity"] == pytest.approx(reached[name]["perplexity"], rel=0.01)
    assert reached["small-llama"]["perplexity"] < 525


def test_the_model_that_comes_along_predicts_its_held_out_text():
    from texts import WINDOW, perplexity, tokens
    from transformers import AutoTokenizer

    folder = EXAMPLES / "models"
    if not folder.is_dir():
        pytest.skip("a source archive has no weights")
    text = (folder / "held_out.txt").read_text()[:40_000]
    ids = tokens(AutoTokenizer.from_pretrained(folder / "small-llama"), [text], "cpu")[: 8 * WINDOW]
    large, draft = (
        perplexity(models.build(models.find(str(folder / name)), weights="pretrained"), ids)
        for name in ("small-llama", "draft")
    )
    assert 6 < large < 8 < 15 < draft < 19
    told = json.loads((folder / "training.json").read_text())
    assert told["small-llama"]["parameters"] > 10_000_000
    assert told["small-llama"]["perplexity"] < told["draft"]["perplexity"] < told["ngram"]["perplexity"]
    assert sum(path.stat().st_size for path in folder.rglob("*")) < 12_000_000
