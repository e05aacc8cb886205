"""Changes a file: its bytes, its JSON values, its tables, or its cells."""

import gzip
import json
import random
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path

Mutator = Callable[[random.Random, bytes], bytes]

ODD_NUMBERS = ["-1", "0", "1e400", "NaN", "-Infinity", "1.5", "9223372036854775807", "-9223372036854775808", "9" * 5000]
ODD_STRINGS = ["", '"', "\\", "\\ud83d", "\0", "\x1b]52;c;x\x07", "\n", "é", "x" * 70_000, '"}],"', "{", "=1+1", "}]x"]
ODD_VALUES = [
    None,
    True,
    -1,
    1.5,
    1e300,
    2**63 - 1,
    2**70,
    "",
    "text",
    [],
    [1, {}],
    {},
    {"ph": "X"},
    [[[[]]]],
    "9" * 99,
]
PIECES = [b'"', b"}", b"]", b"{", b"[", b",", b"\\", b"\xff", b"\0", b"},{", b"]}", b"\n", b'"ph":', b"1e999"]


def flip_bits(chance: random.Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(chance.choice([1, 1, 2, 5, 30])):
        out[chance.randrange(len(out))] ^= 1 << chance.randrange(8)
    return bytes(out)


def replace_pieces(chance: random.Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(chance.choice([1, 1, 2, 5])):
        at = chance.randrange(len(out))
        out[at : at + chance.choice([0, 1, 3, 40])] = chance.choice(PIECES)
    return bytes(out)


def cut_off(chance: random.Random, data: bytes) -> bytes:
    return data[: chance.randrange(1, len(data))]


def lose_or_repeat(chance: random.Random, data: bytes) -> bytes:
    at, size = chance.randrange(len(data)), chance.choice([1, 10, 200, 2000])
    return data[:at] + data[at : at + size] * chance.choice([0, 2, 3]) + data[at + size :]


def concatenate(chance: random.Random, data: bytes) -> bytes:
    return (
        data + chance.choice([b"", b"\n", b",", b"\0" * 9, b" junk "]) + chance.choice([data, b"junk" * 9, data[:99]])
    )


def odd_number(chance: random.Random, data: bytes) -> bytes:
    return _replace_token(chance, data, b"0123456789", chance.choice(ODD_NUMBERS).encode())


def odd_string(chance: random.Random, data: bytes) -> bytes:
    at = data.find(b'"', chance.randrange(len(data)))
    return data if at < 0 else data[: at + 1] + chance.choice(ODD_STRINGS).encode() + data[at + 1 :]


def _replace_token(chance: random.Random, data: bytes, letters: bytes, by: bytes) -> bytes:
    at = chance.randrange(len(data))
    while at < len(data) and data[at] not in letters:
        at += 1
    end = at
    while end < len(data) and data[end] in letters:
        end += 1
    return data[:at] + by + data[end:]


def json_values(chance: random.Random, data: bytes) -> bytes:
    """Drop, rename or repeat keys, and give values other types; the JSON stays valid."""
    document = json.loads(data)
    events = document["traceEvents"]
    for _ in range(chance.choice([1, 3, 20])):
        target = chance.choice([chance.choice(events), chance.choice(events), document])
        if isinstance(target, dict) and isinstance(target.get("args"), dict) and chance.random() < 0.4:
            target = target["args"]
        if not isinstance(target, dict) or not target:
            continue
        key = chance.choice(list(target))
        if target is document and key == "traceEvents":
            continue
        value = target.pop(key)
        how = chance.randrange(4)
        if how == 1:
            target[key.swapcase()] = value
        elif how > 1:
            target[key] = chance.choice(ODD_VALUES)
    return json.dumps(document).encode()


def json_elements(chance: random.Random, data: bytes) -> bytes:
    """Drop, repeat or shuffle events, or replace them by something that is no event."""
    document = json.loads(data)
    events = document["traceEvents"]
    for _ in range(chance.choice([1, 3, 10])):
        at = chance.randrange(len(events))
        events[at : at + 1] = chance.choice([[], [events[at]] * 2, [chance.choice(ODD_VALUES)], events[at::-1][:2]])
    return json.dumps(document).encode()


def deep_nesting(chance: random.Random, data: bytes) -> bytes:
    depth, pair = chance.choice([50, 900, 5000, 100_000]), chance.choice([("[", "]"), ('{"a":', "}")])
    value = pair[0] * depth + "1" + pair[1] * chance.choice([depth, depth, 0])
    key = chance.choice([b'"args": ', b'"name": ', b'"deviceProperties": ', b'"traceName": '])
    at = data.find(key, chance.randrange(len(data) // 2))
    return data if at < 0 else data[: at + len(key)] + value.encode() + b"," + data[at + len(key) :]


def second_list(chance: random.Random, data: bytes) -> bytes:
    """Add another traceEvents to the same document."""
    events = json.dumps(json.loads(data)["traceEvents"][: chance.randrange(1, 9)])
    return data.rstrip()[:-1] + f', "traceEvents": {events}}}'.encode()


def sql(chance: random.Random, data: bytes) -> bytes:
    """Rename or generate columns, drop tables or make them views, and give values other types."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.sqlite"
        path.write_bytes(data)
        connection = sqlite3.connect(path)
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for _ in range(chance.choice([1, 2, 4])):
            table = chance.choice(tables)
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            _change(chance, connection, table, chance.choice(columns) if columns else "gone")
        connection.commit()
        connection.close()
        return path.read_bytes()


def _change(chance: random.Random, connection: sqlite3.Connection, table: str, column: str) -> None:
    value = chance.choice(["NULL", "'text'", "x'00ff'", "1.5", "-1", "9223372036854775807", "-9223372036854775808"])
    view = f"CREATE VIEW {table} AS SELECT * FROM hidden_{table}"
    ways = [
        [f'ALTER TABLE {table} RENAME COLUMN "{column}" TO other_{chance.randrange(99)}'],
        [f'UPDATE {table} SET "{column}" = {value} WHERE rowid % {chance.randrange(1, 7)} = 0'],
        [f"ALTER TABLE {table} RENAME TO hidden_{table}", view],
        [f'ALTER TABLE {table} RENAME COLUMN "{column}" TO o', f'ALTER TABLE {table} ADD "{column}" AS (o)'],
        [f"INSERT INTO {table} SELECT * FROM {table} LIMIT 5"],
    ]
    try:
        for statement in chance.choice(ways):
            connection.execute(statement)
    except sqlite3.Error:
        return


def cells(chance: random.Random, data: bytes) -> bytes:
    """Drop, repeat, swap or replace cells of a CSV."""
    lines = data.decode().split("\n")
    for _ in range(chance.choice([1, 2, 8])):
        row = chance.randrange(1, len(lines))
        fields = lines[row].split('","')
        at = chance.randrange(len(fields))
        fields[at : at + 1] = chance.choice(
            [[], [fields[at]] * 2, [chance.choice(ODD_NUMBERS)], [chance.choice(ODD_STRINGS)]]
        )
        lines[row] = '","'.join(fields)
    return "\n".join(lines).encode()


ANY: list[Mutator] = [flip_bits, replace_pieces, cut_off, lose_or_repeat, concatenate, odd_number, odd_string]
OF_FORMAT: dict[str, list[Mutator]] = {
    "kineto": [*ANY, json_values, json_values, json_elements, deep_nesting, second_list],
    "kineto-gzip": [*ANY],
    "nsys": [flip_bits, cut_off, lose_or_repeat, concatenate, sql, sql, sql],
    "ncu": [*ANY, cells, cells],
    "perfetto": [flip_bits, flip_bits, cut_off, lose_or_repeat, concatenate, replace_pieces],
    "proton": [*ANY],
    "proton-tree": [*ANY],
}


def compressed(chance: random.Random, data: bytes) -> bytes:
    """Return a sound gzip of mutated text, or a mutated gzip of sound text."""
    way = chance.choice(ANY)
    return gzip.compress(way(chance, data), 1) if chance.random() < 0.5 else way(chance, gzip.compress(data, 1))
