"""Resolves the strings to which the packets of a sequence refer by number."""

from dataclasses import dataclass, field
from typing import Any

from tracekit.analyzers.readers.perfetto.message_types import text

_ARGUMENT_NAMES_OF_LAUNCHES = 1001
"""Field of InternedData with the names of arguments of compute launches. Perfetto's package does not declare it."""

Strings = dict[int, str]


@dataclass
class Interned:
    """The incremental state of a sequence. `valid` is False after lost packets, until the sequence begins again."""

    names: Strings = field(default_factory=dict)
    categories: Strings = field(default_factory=dict)
    argument_names: Strings = field(default_factory=dict)
    argument_strings: Strings = field(default_factory=dict)
    stages: Strings = field(default_factory=dict)
    launch_arguments: Strings = field(default_factory=dict)
    nested: dict[bytes, Any] = field(default_factory=dict)
    """Lists and dictionaries among the arguments, by their bytes, because most events share their shapes with other
    events."""
    default_track: int = 0
    clock: int = 0
    valid: bool = False

    def add(self, data: Any, messages: Any) -> None:
        """Add the entries of a packet's interned data. `messages` is Perfetto's module of messages."""
        self.names |= {each.iid: text(each.name) for each in data.event_names}
        self.categories |= {each.iid: text(each.name) for each in data.event_categories}
        self.argument_names |= {each.iid: text(each.name) for each in data.debug_annotation_names}
        self.argument_strings |= {
            each.iid: each.str.decode("utf-8", "replace") for each in data.debug_annotation_string_values
        }
        self.stages |= {each.iid: text(each.name) for each in data.gpu_specifications}
        self.launch_arguments |= _undeclared(data, messages)


def _undeclared(data: Any, messages: Any) -> Strings:
    from google.protobuf.unknown_fields import UnknownFieldSet

    named = (f.data for f in UnknownFieldSet(data) if f.field_number == _ARGUMENT_NAMES_OF_LAUNCHES)
    entries = (messages.EventName.FromString(raw) for raw in named if isinstance(raw, bytes))
    return {each.iid: text(each.name) for each in entries}
