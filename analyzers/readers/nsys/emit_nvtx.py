"""Parse the names that torch.autograd.profiler.emit_nvtx gives to NVTX ranges.

"aten::linear, seq = 3, op_id = 7, sizes = [[8, 768], [2304, 768], [2304]], input_op_ids = [(6,0)]"; every part except
the name may be missing, depending on the torch version. Users' ranges have an op_id, too.
"""

import re
from dataclasses import dataclass

import msgspec

_PARTS = re.compile(
    r"(?P<name>.+?)(?:, seq = (?P<sequence>\d{1,9}))?(?:, op_id = (?P<op_id>\d{1,18}))?"
    r"(?:, sizes = (?P<sizes>\[[\d\[\], -]*\]))?(?:, input_op_ids = \[[^\[\]]*\])?",
    re.DOTALL,
)
_OP = re.compile(r"autograd::engine::evaluate_function: .*|\w+(?:::\w+)*::[\w.]+|detach_?", re.DOTALL)
_decode_shapes = msgspec.json.Decoder(list[list[int]]).decode


@dataclass(frozen=True)
class RangeName:
    """The parts of a name. `sequence` and `op_id` are -1, and `shapes` (as JSON text) "", if absent."""

    name: str
    is_op: bool
    sequence: int = -1
    op_id: int = -1
    shapes: str = ""


def parse(text: str) -> RangeName:
    """Parse a name. A range is an op if it has a sequence number, or is called namespace::name or detach."""
    if "::" not in text and ", " not in text:
        return RangeName(text, is_op=False)
    parts = _PARTS.fullmatch(text)
    if not parts:
        return RangeName(text, is_op=False)
    name, sequence = parts["name"], int(parts["sequence"] or -1)
    is_op = sequence >= 0 or bool(_OP.fullmatch(name))
    return RangeName(name, is_op, sequence, int(parts["op_id"] or -1), _shapes(parts["sizes"] or ""))


def _shapes(sizes: str) -> str:
    try:
        return msgspec.json.encode(_decode_shapes(sizes)).decode() if sizes else ""
    except (msgspec.DecodeError, ValueError):
        return ""
