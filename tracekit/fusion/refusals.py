"""Why a group of a plan has no kernel: what the template of its pattern needs."""

from tracekit.analyzers.fusion.kernel import GENERATED
from tracekit.analyzers.fusion.planned_kernels import Planned

_NEEDS = {
    "residual + norm": "the template is put into layers that are x + a(norm(x)), then x + mlp(norm(x)), and nothing "
    "else, with a layer norm or an RMS norm by its plain weight",
    "norm": "the template does RMS norms of heads of queries and keys, by their plain weight",
    "rotary embedding": "the template rotates queries and keys in one call, or one tensor by the angles of pairs",
    "gated activation": "the template is put into MLPs that are down(activation(gate(x)) * up(x)), and nothing else",
    "cross entropy": "the template is for causal models of transformers, whose head has no bias and whose logits are "
    "not scaled",
    "pointwise chain": "the template is put into modules that compute the chain of one tensor, and nothing else",
    "embedding + position": "the template has no backward pass",
    "softmax": "the template does attention's softmax, of four dimensions",
}
_UNKNOWN = "no template fits this group"


def refusal(planned: Planned) -> str:
    """Return why no template does a group."""
    if planned.library and planned.pattern not in _NEEDS:
        return _UNKNOWN
    known = GENERATED["one"] | GENERATED["two"]
    others = sorted(set(planned.ops.split(", ")) - known)
    if planned.pattern in ("gated activation", "pointwise chain") and others:
        return f"{_UNKNOWN}: code is not generated for {', '.join(others)}"
    needs = _NEEDS.get(planned.pattern)
    return f"{_UNKNOWN}: {needs}" if needs else _UNKNOWN
