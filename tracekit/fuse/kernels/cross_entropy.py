"""Cross-entropy without all logits in memory: head and loss are computed for some rows at a time.

The library's GEMM computes the logits of some rows. One kernel then computes each row's loss and overwrites its logits
with their gradient. An odd vocabulary is padded with zeros, because the library's GEMMs take several times as long for
rows that are not whole vectors.
"""

from types import MethodType

import torch
import triton
import triton.language as tl

LAYERS = ("LlamaForCausalLM",)
"""Classes of the models that consist of a base model and a head."""
HEAD = "lm_head"
CHUNK_BYTES = 1 << 28
"""Largest size of the logits that are in memory at a time."""
VECTOR_BYTES = 16
IGNORED = -100
CONFIGS = (
    {"BLOCK": 4096, "num_warps": 8},
    {"BLOCK": 8192, "num_warps": 16},
    {"BLOCK": 2048, "num_warps": 4},
)
"""Launch configurations to try, best first. BLOCK is the number of elements of a row that a block reads at a time."""
CONFIG = CONFIGS[0]


@triton.jit
def _loss_and_gradient(
    logits_ptr, label_ptr, loss_ptr, count_ptr, vocabulary, width,
    IGNORED: tl.constexpr, GRADIENT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute the maximum and the sum of exponentials in the first pass. Overwrite the logits with the gradient, which
    is zero in the padding, in the second."""
    row = tl.program_id(0).to(tl.int64)
    logits_ptr += row * width
    label = tl.load(label_ptr + row)
    largest = -float("inf")
    total = 0.0
    for start in range(0, vocabulary, BLOCK):
        column = start + tl.arange(0, BLOCK)
        logits = tl.load(logits_ptr + column, mask=column < vocabulary, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(largest, tl.max(logits, axis=0))
        total = total * tl.exp(largest - higher) + tl.sum(tl.exp(logits - higher), axis=0)
        largest = higher
    counts = label != IGNORED
    own = tl.load(logits_ptr + tl.where(counts, label, 0)).to(tl.float32)
    tl.store(loss_ptr + row, tl.where(counts, tl.log(total) + largest - own, 0.0))
    if GRADIENT:
        share = tl.where(counts, 1.0 / tl.load(count_ptr).to(tl.float32), 0.0)
        for start in range(0, width, BLOCK):
            column = start + tl.arange(0, BLOCK)
            logits = tl.load(logits_ptr + column, mask=column < vocabulary, other=-float("inf")).to(tl.float32)
            gradient = tl.exp(logits - largest) / total - tl.where(column == label, 1.0, 0.0)
            tl.store(logits_ptr + column, gradient * share, mask=column < width)


def rows_to_loss(logits, labels, count, gradient, vocabulary):
    """Return the loss of each row. With `gradient`, the logits are overwritten with the gradient of the mean loss."""
    losses = torch.empty(len(logits), dtype=torch.float32, device=logits.device)
    if len(logits):
        _loss_and_gradient[(len(logits),)](
            logits, labels, losses, count, vocabulary, logits.shape[1], IGNORED, gradient, **CONFIG
        )  # fmt: skip
    return losses


def _run(hidden, weight, labels, gradient):
    """Return the mean loss, and the gradients of hidden and of weight (None without `gradient`)."""
    vocabulary, weight = len(weight), _padded(weight)
    count = (labels != IGNORED).sum()
    rows = max(1, CHUNK_BYTES // (len(weight) * hidden.element_size()))
    hidden_grad = torch.empty_like(hidden) if gradient else None
    weight_grad, losses = None, []
    for start in range(0, len(hidden), rows):
        some = slice(start, start + rows)
        logits = hidden[some] @ weight.t()
        losses.append(rows_to_loss(logits, labels[some], count, gradient, vocabulary))
        if gradient:
            torch.mm(logits, weight, out=hidden_grad[some])
            part = logits.t() @ hidden[some]
            weight_grad = part if len(hidden) <= rows else part.float() if weight_grad is None else weight_grad + part
    return torch.cat(losses).sum() / count, hidden_grad, weight_grad[:vocabulary] if gradient else None


def _padded(weight):
    """Return the weights with zeros for additional tokens up to a whole vector."""
    missing = -len(weight) % (VECTOR_BYTES // weight.element_size())
    return torch.nn.functional.pad(weight, (0, 0, 0, missing)) if missing else weight


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden, weight, labels):
        loss, hidden_grad, weight_grad = _run(hidden, weight, labels, gradient=True)
        ctx.save_for_backward(hidden_grad, weight_grad.to(weight.dtype))
        return loss

    @staticmethod
    def backward(ctx, grad):
        hidden_grad, weight_grad = ctx.saved_tensors
        return hidden_grad * grad.to(hidden_grad.dtype), weight_grad * grad.to(weight_grad.dtype), None


def fused(hidden, weight, labels):
    """Return the mean cross-entropy of the head's logits, hidden @ weight.T, without rows whose label is IGNORED.

    Shapes: hidden (tokens, size), weight (vocabulary, size), labels (tokens).
    """
    hidden, weight, labels = hidden.contiguous(), weight.contiguous(), labels.contiguous()
    if torch.is_grad_enabled() and (hidden.requires_grad or weight.requires_grad):
        return _CrossEntropy.apply(hidden, weight, labels)
    return _run(hidden, weight, labels, gradient=False)[0]


def reference(hidden, weight, labels):
    logits = hidden @ weight.t()
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return torch.nn.functional.cross_entropy(logits, labels, ignore_index=IGNORED)


def products(hidden, weight, labels):
    """Return the head's logits, by the library's GEMM, which is not part of the group that the kernel replaces."""
    return hidden @ weight.t()


def example(dtype, device, rows=4, columns=64, vocabulary=5000):
    hidden = torch.randn(rows, columns, dtype=dtype, device=device)
    weight = torch.randn(vocabulary, columns, dtype=dtype, device=device) * columns**-0.5
    labels = torch.randint(vocabulary, (rows,), device=device)
    labels[-1:] = IGNORED if rows > 1 else labels[-1:]
    return hidden, weight, labels


def apply(model):
    """Replace each model's loss with one that does not store all logits. Without labels, the model is unchanged.

    Raises ValueError if there is no such model.
    """
    modules = [each for each in model.modules() if type(each).__name__ in LAYERS]
    if not modules:
        raise ValueError(f"The model has no {' or '.join(LAYERS)}.")
    for module in modules:
        module.forward = MethodType(_with_loss, module)
    return model


def remove(model):
    for module in model.modules():
        if getattr(module.__dict__.get("forward"), "__func__", None) is _with_loss:
            del module.forward
    return model


def _with_loss(self, input_ids=None, *args, labels=None, **kwargs):
    if labels is None:
        return type(self).forward(self, input_ids, *args, **kwargs)
    from transformers.modeling_outputs import CausalLMOutputWithPast

    outputs = self.base_model(input_ids, *args, **kwargs)
    hidden = outputs.last_hidden_state[:, :-1].reshape(-1, outputs.last_hidden_state.shape[-1])
    loss = fused(hidden, getattr(self, HEAD).weight, labels[:, 1:].reshape(-1))
    return CausalLMOutputWithPast(loss=loss, past_key_values=outputs.past_key_values)
