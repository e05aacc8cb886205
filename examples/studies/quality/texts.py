"""The texts of the study, split into what is trained on and what is held out, and their tokens."""

import math
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedTokenizerFast

VOCABULARY, WINDOW = 2048, 512
_BLOCK, _EVERY = 4000, 10


@dataclass(frozen=True)
class Text:
    train: str
    held_out: str


def text(name: str) -> Text:
    """Return a bundled text; every tenth block of 4,000 characters is held out."""
    whole = (Path(__file__).parent / "texts" / f"{name}.txt").read_text()
    blocks = [whole[start : start + _BLOCK] for start in range(0, len(whole), _BLOCK)]
    held = blocks[_EVERY - 1 :: _EVERY]
    return Text("".join(each for index, each in enumerate(blocks) if (index + 1) % _EVERY), "".join(held))


def train_tokenizer(train: str) -> PreTrainedTokenizerFast:
    """Return a byte-level BPE of 2,048 tokens, trained on the text."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet, special = pre_tokenizers.ByteLevel.alphabet(), ["<s>", "<pad>", "</s>"]
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=special, initial_alphabet=alphabet)
    made.train_from_iterator([train], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", pad_token="<pad>", eos_token="</s>")


def tokens(tokenizer: PreTrainedTokenizerFast, written: str, device: str) -> Tensor:
    return torch.tensor(tokenizer(written).input_ids, device=device)


def batch(ids: Tensor, size: int, generator: torch.Generator) -> Tensor:
    """Return random windows of the tokens."""
    starts = torch.randint(len(ids) - WINDOW, (size, 1), generator=generator).to(ids.device)
    return ids[starts + torch.arange(WINDOW, device=ids.device)]


@torch.inference_mode()
def perplexity(model: nn.Module, ids: Tensor) -> float:
    """Return the exponential of the mean negative log likelihood per token, in whole windows of 512 tokens."""
    training, losses = model.training, []
    model.eval()
    for windows in ids[: len(ids) // WINDOW * WINDOW].view(-1, WINDOW).split(16):
        logits = model(input_ids=windows, use_cache=False).logits[:, :-1].float()
        losses.append(functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten(), reduction="none"))
    model.train(training)
    return math.exp(torch.cat(losses).double().mean().item())


def unigram_perplexity(train: Tensor, held_out: Tensor) -> float:
    """Return the perplexity of token frequencies alone, with one added to every count."""
    counts = torch.bincount(train, minlength=VOCABULARY).double() + 1
    return math.exp(-(counts / counts.sum()).log()[held_out].mean().item())
