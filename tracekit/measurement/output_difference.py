"""How far two outputs are apart, as numbers and as choices."""

from typing import Any

from tracekit.analyzers.verification import Difference
from tracekit.capture.packages import require


def difference(baseline: Any, output: Any, *, logits: bool) -> Difference:
    """Compare two tensors of one shape. With `logits`, their last dimension is the vocabulary or the classes."""
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
