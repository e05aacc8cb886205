"""What torch records of a collective beside its op, in arguments of their own: as the op's values."""

from collections.abc import Sequence

import msgspec

from tracekit.analyzers.readers.events import CollectiveArgs, Event, decode_args

RECORDED_AS = "record_param_comms"


def with_messages(values: list[msgspec.Raw], events: Sequence[Event]) -> list[msgspec.Raw]:
    """The values of host events, those of a collective replaced by its name, elements sent and received, their type,
    and the number of ranks, where the trace says them."""
    rows = [row for row, event in enumerate(events) if event.name == RECORDED_AS]
    for row, args in zip(rows, decode_args(CollectiveArgs, [events[row].args for row in rows]), strict=True):
        if args.name:
            said = (args.name, str(args.sent), str(args.received), args.dtype, str(args.ranks))
            values[row] = msgspec.Raw(msgspec.json.encode(said))
    return values
