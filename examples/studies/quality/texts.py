"""Tokens of texts, and how well a model predicts them."""

import math
from collections.abc import Sequence

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedTokenizerFast

VOCABULARY, WINDOW = 3072, 512
END = 2
"""Token that ends a file."""
_TOKENIZED_CHARACTERS = 24_000_000
_TOGETHER = 1000


def train_tokenizer(train: Sequence[str], vocabulary: int = VOCABULARY) -> PreTrainedTokenizerFast:
    """Return a byte-level BPE, trained on files spread evenly over the texts."""
    every = max(1, sum(map(len, train)) // _TOKENIZED_CHARACTERS)
    made = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet, special = pre_tokenizers.ByteLevel.alphabet(), ["<s>", "<pad>", "</s>"]
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(train[::every], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", pad_token="<pad>", eos_token="</s>")


def tokens(tokenizer: PreTrainedTokenizerFast, written: Sequence[str], device: str) -> Tensor:
    """Return the tokens of all files, an END after each."""
    parts = []
    for start in range(0, len(written), _TOGETHER):
        some = list(written[start : start + _TOGETHER])
        encoded = tokenizer.backend_tokenizer.encode_batch_fast(some, add_special_tokens=False)
        parts += [torch.tensor([*each.ids, END], dtype=torch.int32) for each in encoded]
    return torch.cat(parts).to(device)


def batch(ids: Tensor, size: int, generator: torch.Generator) -> Tensor:
    """Return random windows of the tokens; the generator is on their device."""
    starts = torch.randint(len(ids) - WINDOW, (size, 1), generator=generator, device=ids.device)
    return ids[starts + torch.arange(WINDOW, device=ids.device)].long()


@torch.inference_mode()
def loss_of(model: nn.Module, ids: Tensor) -> float:
    """Return the mean negative log likelihood per token in nats, in whole windows of 512 tokens."""
    training, losses = model.training, []
    model.eval()
    for windows in ids[: len(ids) // WINDOW * WINDOW].view(-1, WINDOW).split(32):
        logits = model(input_ids=windows.long(), use_cache=False).logits[:, :-1].float()
        losses.append(functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten().long(), reduction="none"))
    model.train(training)
    return torch.cat(losses).double().mean().item()


def perplexity(model: nn.Module, ids: Tensor) -> float:
    return math.exp(loss_of(model, ids))
