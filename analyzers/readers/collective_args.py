"""Read the arguments in which torch records the message of a collective, as the values of its op."""

from collections.abc import Sequence

import msgspec

from tracekit.analyzers.readers.events import CollectiveArgs, Event, decode_args

RECORDED_AS = "record_param_comms"


def with_messages(values: list[msgspec.Raw], events: Sequence[Event]) -> list[msgspec.Raw]:
    """Replace the values of collectives with name, elements sent and received, their dtype, the number of ranks, the
    group's name, the sequence number in it, and the source and target of a send (-1: not recorded).

    Values of other host events, and of collectives without these arguments, are unchanged.
    """
    rows = [row for row, event in enumerate(events) if event.name == RECORDED_AS]
    for row, args in zip(rows, decode_args(CollectiveArgs, [events[row].args for row in rows]), strict=True):
        if args.name:
            numbers = (args.sequence, args.source, args.target)
            message = (args.name, str(args.sent), str(args.received), args.dtype, str(args.ranks), args.group)
            values[row] = msgspec.Raw(msgspec.json.encode((*message, *map(str, numbers))))
    return values
