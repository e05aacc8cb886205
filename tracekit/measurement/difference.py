"""How far two outputs are apart, as numbers and as choices."""

from dataclasses import dataclass
from typing import Any

from tracekit.capture.packages import require


@dataclass(frozen=True)
class Difference:
    """Of an output from the baseline's, over all its elements; in training, of the loss."""

    max_abs: float
    relative: float
    """Root mean square of the difference over that of the baseline."""
    kl: float | None
    """Mean Kullback-Leibler divergence of the distributions over the vocabulary, in nats; None: no logits."""
    agreement: float | None
    """Share of positions with the same most likely token, 0 to 1; None: no logits."""


def difference(baseline: Any, output: Any, *, logits: bool) -> Difference:
    """Of two tensors of one shape; with `logits`, their last dimension is the vocabulary."""
    torch = require("torch")
    with torch.inference_mode():
        before, after = baseline.detach().float(), output.detach().float()
        apart = after - before
        relative = (apart.square().mean().sqrt() / before.square().mean().sqrt().clamp_min(1e-30)).item()
        if not logits:
            return Difference(apart.abs().max().item(), relative, None, None)
        kl = torch.nn.functional.kl_div(
            after.log_softmax(-1), before.log_softmax(-1), reduction="none", log_target=True
        ).sum(-1)
        same = (before.argmax(-1) == after.argmax(-1)).float().mean()
        return Difference(apart.abs().max().item(), relative, max(kl.mean().item(), 0.0), same.item())
