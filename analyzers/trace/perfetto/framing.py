"""Split a Perfetto trace into runs of whole packets, without decoding them."""

from collections.abc import Iterator

PACKET_TAG = 0x0A
"""Tag of `Trace.packet`: field 1, length-delimited."""

_RUN_BYTES = 1 << 20
_LARGEST_PACKET = 64 << 20
_LONGEST_VARINT = 10
_VARINT, _FIXED64, _DELIMITED, _FIXED32 = 0, 1, 2, 5
_SNIFFED_PACKETS = 3


class Framing:
    """Yields runs of packets, and says afterwards how many bytes at the end are not packets, and why."""

    def __init__(self) -> None:
        self.rest = 0
        self.why = ""

    def runs(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """Yield consecutive whole packets in pieces of about a megabyte."""
        buffer = b""
        for block in blocks:
            buffer += block
            if len(buffer) < _RUN_BYTES:
                continue
            end, broken = _whole(buffer)
            yield buffer[:end]
            buffer = buffer[end:]
            if broken or len(buffer) > _LARGEST_PACKET:
                break
        end, broken = _whole(buffer)
        yield buffer[:end]
        self.rest = len(buffer) - end + sum(map(len, blocks))
        if self.rest:
            cut = "its last packet is cut off"
            self.why = f"{self.rest:,} bytes at its end are not packets" if broken else cut


def each_packet(packets: bytes) -> Iterator[bytes]:
    """Yield whole packets one by one, each with its tag and length."""
    at = 0
    while at < len(packets):
        length, start = _varint(packets, at + 1)
        yield packets[at : start + length]
        at = start + length


def looks_like_packets(head: bytes) -> bool:
    """Return whether a file that begins with `head` is a Perfetto trace: its packets' fields fill the packets
    exactly."""
    at, fields = 0, 0
    for _ in range(_SNIFFED_PACKETS):
        if at >= len(head):
            break
        length, start = _varint(head, at + 1) if head[at] == PACKET_TAG else (-1, at)
        if not 0 < length <= _LARGEST_PACKET:
            return False
        seen = _fields(head, start, start + length)
        if seen < 0:
            return False
        at, fields = start + length, fields + seen
    return fields > 0


def _whole(data: bytes) -> tuple[int, bool]:
    """Return where the last whole packet ends, and whether the bytes after it cannot be the beginning of a packet."""
    at = 0
    while at < len(data):
        if data[at] != PACKET_TAG:
            return at, True
        length, start = _varint(data, at + 1)
        if length > _LARGEST_PACKET or start - at > _LONGEST_VARINT:
            return at, True
        if length < 0 or start + length > len(data):
            return at, False
        at = start + length
    return at, False


def _fields(data: bytes, at: int, end: int) -> int:
    """Return the number of whole fields of a message, up to the end of `data`; -1 if it is not a message."""
    seen = 0
    while at < end and at < len(data):
        tag, at = _varint(data, at)
        size, at = _size(data, at, tag & 7) if tag >= 8 else (-1, at)
        if size == _UNKNOWN:
            break
        at += size
        if size < 0 or at > end:
            return -1
        seen += at <= len(data)
    return seen


_UNKNOWN = -2


def _size(data: bytes, at: int, wire: int) -> tuple[int, int]:
    """Return the size of a field's value in bytes, and its offset. A size of -1 means that there is no field, -2 that
    it is cut off."""
    if wire in (_FIXED64, _FIXED32):
        return (8 if wire == _FIXED64 else 4), at
    if wire not in (_VARINT, _DELIMITED):
        return -1, at
    value, after = _varint(data, at)
    if value < 0:
        return _UNKNOWN, after
    return (0 if wire == _VARINT else value), after


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a varint and the offset after it; -1 if the data end inside it or it is too long."""
    value = shift = 0
    while at < len(data) and shift < 7 * _LONGEST_VARINT:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    return -1, at
