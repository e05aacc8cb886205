"""Changes an input: its values (a tree of dicts, lists and scalars), its events, its bytes, or the files around it."""

import copy
import gzip
import json
import pickle
import random
import re
import sqlite3
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perfetto.protos.perfetto.trace import perfetto_trace_pb2

Tree = Any
TreeMutator = Callable[[random.Random, Tree], None]
ByteMutator = Callable[[random.Random, bytes], bytes]
FolderMutator = Callable[[random.Random, dict[str, bytes]], None]

_INT64 = 2**63
ODD_NUMBERS = [
    *(
        -1,
        0,
        0.5,
        1e300,
        -1e300,
        1e-300,
        2**31,
        2**53 + 1,
        2**62,
        _INT64 - 1,
        _INT64,
        -_INT64,
        -_INT64 - 1,
        2**70,
        10**25,
    ),
    *(float("nan"), float("inf"), float("-inf"), int("9" * 400)),
]
ODD_TEXTS = [
    *(
        "",
        "text",
        '"',
        "\\",
        "\ud83d",
        "\0",
        "\x1b]52;c;x\x07",
        "\n",
        "é",
        "\u202e",
        "x" * 70_000,
        "=1+1",
        "}]x",
        "9" * 99,
    ),
    *(
        "x',print(1),'z",
        "../../etc",
        "NaN",
        "-1",
        "metrics: k",
        "ProfilerStep#0",
        "[1, 2]",
        "{}",
        "<None>",
        "nccl:all_reduce",
    ),
]
ODD_OTHERS: list[Any] = [
    None,
    True,
    [],
    [1, {}],
    {},
    {"ph": "X"},
    [[[[]]]],
    [None] * 9,
    [[1 << 40, 1 << 40]],
    [-1, 2**70],
]
_PIECES = [b'"', b"}", b"]", b"{", b"[", b",", b"\\", b"\xff", b"\0", b"},{", b"]}", b"\n", b'"ph":', b"1e999", b"NaN"]


def odd(chance: random.Random) -> Any:
    return copy.deepcopy(chance.choice(chance.choice([ODD_NUMBERS, ODD_NUMBERS, ODD_TEXTS, ODD_OTHERS])))


# Trees


def _place(chance: random.Random, tree: Tree) -> tuple[Any, Any]:
    """Return a container and one of its keys or indices, drawn on the way from the root to a leaf; (None, None) for
    an empty tree."""
    found: tuple[Any, Any] = None, None
    while isinstance(tree, (dict, list)) and tree:
        key = chance.choice(list(tree)) if isinstance(tree, dict) else chance.randrange(len(tree))
        found, tree = (tree, key), tree[key]
        if chance.random() < 0.15:
            break
    return found


def retype(chance: random.Random, tree: Tree) -> None:
    held, key = _place(chance, tree)
    if held is not None:
        held[key] = odd(chance)


def as_text(chance: random.Random, tree: Tree) -> None:
    """Write a number as a text (ids as strings), a text as a list, or a list as its JSON."""
    held, key = _place(chance, tree)
    if held is not None:
        value = held[key]
        held[key] = [value] if isinstance(value, str) else json.dumps(value, default=str)


def drop(chance: random.Random, tree: Tree) -> None:
    held, key = _place(chance, tree)
    if held is not None:
        del held[key]


def rename(chance: random.Random, tree: Tree) -> None:
    held, key = _place(chance, tree)
    if isinstance(held, dict):
        other = chance.choice([str(key).swapcase(), f"{key} ", *ODD_TEXTS, *map(str, held)])
        held[other] = held.pop(key)


def swap(chance: random.Random, tree: Tree) -> None:
    """Exchange the values of two keys of a container, or of two places anywhere."""
    held, key = _place(chance, tree)
    other = chance.choice([*held] if isinstance(held, dict) else range(len(held))) if held else None
    there, at = (held, other) if chance.random() < 0.6 else _place(chance, tree)
    if held is not None and there is not None:
        held[key], there[at] = copy.deepcopy(there[at]), copy.deepcopy(held[key])


def duplicate(chance: random.Random, tree: Tree) -> None:
    """Repeat an element of a list, or write a value under another key, too."""
    held, key = _place(chance, tree)
    if isinstance(held, list):
        held[key:key] = [copy.deepcopy(held[key]) for _ in range(chance.choice([1, 1, 3, 200]))]
    elif held is not None:
        held[chance.choice([*held, "copy"])] = copy.deepcopy(held[key])


def transplant(chance: random.Random, tree: Tree) -> None:
    """Write a value from elsewhere of the tree here: nesting that no writer makes."""
    (held, key), (there, at) = _place(chance, tree), _place(chance, tree)
    if held is not None and there is not None:
        held[key] = copy.deepcopy(there[at])


def shuffle(chance: random.Random, tree: Tree) -> None:
    held, key = _place(chance, tree)
    if held is not None and isinstance(held[key], list):
        chance.shuffle(held[key])
    elif isinstance(held, list):
        chance.shuffle(held)


TREES: tuple[TreeMutator, ...] = (retype, retype, retype, as_text, drop, rename, swap, duplicate, transplant, shuffle)


# Events of traces


_IDENTITIES: dict[str, list[Any]] = {
    "ph": ["P", "b", "e", "i", "B", "E", "M", "C", "s", "", "XX", 1, None],
    "cat": ["gpu_memcpy", "gpu_memset", "cpu_op", "gpu_user_annotation", "overhead", "Kernel", "new", ""],
    "name": ["metrics: k", "ProfilerStep#0", "Memcpy HtoD", "nccl", "cudaStreamSynchronize", "  ", "a\nb", 7],
}


def _events(tree: Tree) -> list[dict[str, Any]]:
    """Return the events of a trace, or of a list of lists of events."""
    lists = [tree.get("traceEvents")] if isinstance(tree, dict) else tree if isinstance(tree, list) else []
    return [event for events in lists if isinstance(events, list) for event in events if isinstance(event, dict)]


def steps(chance: random.Random, tree: Tree) -> None:
    """Add marks of steps: unsorted, nested, overlapping, repeated."""
    events = tree.get("traceEvents") if isinstance(tree, dict) else None
    for _ in range(chance.randrange(1, 6) if isinstance(events, list) else 0):
        at, us = chance.choice([0, 5, 50, 120, 300]), chance.choice([0, 1, 40, 130, 500])
        name = f"ProfilerStep#{chance.choice([0, 1, 1, 7, -1, 10**30])}"
        mark = {"ph": "X", "cat": "user_annotation", "name": name, "pid": 1, "tid": 1, "ts": at, "dur": us, "args": {}}
        events.insert(chance.randrange(len(events) + 1), mark)


def devices(chance: random.Random, tree: Tree) -> None:
    """Spread the kernels over several devices and streams."""
    ids = chance.choice(
        [[0, 1], [0, 1, 2, 3], [0, "1"], ["0", "1"], [0, -1], [7, 10**9], [0, 2**40], [0, None], [0, 1.5]]
    )
    for event in _events(tree):
        args = event.get("args")
        if event.get("cat") in ("kernel", "gpu_memcpy") and isinstance(args, dict):
            event["pid"] = args["device"] = chance.choice(ids)
            if chance.random() < 0.3:
                event["tid"] = args["stream"] = chance.choice([7, 20, "7", -5, 10**12])


def clocks(chance: random.Random, tree: Tree) -> None:
    """Move, scale, reverse or overlap the times of some events."""
    every, way = chance.choice([1, 2, 7]), chance.randrange(6)
    by = chance.choice([1e-3, 1e6, 1e12, 2.0**53, 9.2e15, -1e15, 1e18])
    for i, event in enumerate(_events(tree)):
        ts, us = event.get("ts"), event.get("dur")
        if i % every or not all(isinstance(each, (int, float)) and abs(each) < 1e300 for each in (ts, us)):
            continue
        ways = [(ts + by, us), (ts, us + by), (ts, -us), (-ts, us), (ts * 3 % 97, us), (ts, us * 40)]
        event["ts"], event["dur"] = ways[way]


def phases(chance: random.Random, tree: Tree) -> None:
    """Give some events another phase, category or kind of name."""
    events = _events(tree)
    for event in chance.sample(events, min(len(events), chance.choice([1, 3, 9]))):
        field = chance.choice(list(_IDENTITIES))
        event[field] = chance.choice(_IDENTITIES[field])


def arguments(chance: random.Random, tree: Tree) -> None:
    """Give ops huge, negative, ragged or wrong shapes, and events odd arguments."""
    shapes: list[Any] = [
        [[2**62, 2**62], [2**62, 2**62]],
        [[-1, 3], [3, 4]],
        [[[1, 2], 3]],
        [[10**30]],
        "[[8]]",
        [["8"]],
    ]
    shapes += [[[0, 0], [0, 0]], [[8] * 5000], [[8.5, 2], [2, 2]], [None], [[]], {}, [[2**31] * 20, [2**31] * 20]]
    names = [
        "aten::mm",
        "aten::addmm",
        "aten::bmm",
        "aten::convolution",
        "aten::native_layer_norm",
        "aten::add",
        "aten::copy_",
    ]
    for event in _events(tree):
        if isinstance(event.get("args"), dict) and chance.random() < 0.3:
            event["args"]["Input Dims"] = copy.deepcopy(chance.choice(shapes))
            event["args"]["Concrete Inputs"] = chance.choice([[], ["", "9" * 40, "[1, 2"], ["nan"], 3])
            if event.get("cat") == "cpu_op":
                event["name"] = chance.choice(names)


EVENTS: tuple[TreeMutator, ...] = (steps, devices, clocks, phases, arguments)


# Bytes


def flip_bits(chance: random.Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(chance.choice([1, 1, 2, 5, 30])):
        out[chance.randrange(len(out))] ^= 1 << chance.randrange(8)
    return bytes(out)


def replace_pieces(chance: random.Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(chance.choice([1, 1, 2, 5])):
        at = chance.randrange(len(out) + 1)
        out[at : at + chance.choice([0, 1, 3, 40])] = chance.choice(_PIECES)
    return bytes(out)


def cut_off(chance: random.Random, data: bytes) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


def lose_or_repeat(chance: random.Random, data: bytes) -> bytes:
    at, size = chance.randrange(len(data)), chance.choice([1, 10, 200, 2000])
    return data[:at] + data[at : at + size] * chance.choice([0, 2, 3]) + data[at + size :]


def concatenate(chance: random.Random, data: bytes) -> bytes:
    between = chance.choice([b"", b"\n", b",", b"\0" * 9, b" junk ", b" " * 100_000])
    return data + between + chance.choice([data, b"junk" * 9, data[:99]])


def odd_number(chance: random.Random, data: bytes) -> bytes:
    text = chance.choice(["1e400", "-0", "9" * 5000, *map(str, ODD_NUMBERS[:-1])])
    numbers = list(re.finditer(rb"-?\d+(\.\d+)?", data))
    if not numbers:
        return data
    at = chance.choice(numbers)
    return data[: at.start()] + text.encode() + data[at.end() :]


def repeat_field(chance: random.Random, data: bytes) -> bytes:
    """Write a field of JSON or TOML twice, with two values."""
    fields = list(re.finditer(rb'"[^"\n]+"\s*[:=]\s*("[^"]*"|-?[\d.]+)', data))
    if not fields:
        return data
    one = chance.choice(fields)
    again = one.group()[: one.start(1) - one.start()] + chance.choice([b"1", b'"x"', b"[]", b"null", one.group(1)])
    return data[: one.start()] + again + chance.choice([b", ", b"\n"]) + data[one.start() :]


def deep_nesting(chance: random.Random, data: bytes) -> bytes:
    depth, pair = chance.choice([50, 900, 5000, 100_000]), chance.choice([(b"[", b"]"), (b'{"a":', b"}")])
    value = pair[0] * depth + b"1" + pair[1] * chance.choice([depth, depth, 0])
    fields = list(re.finditer(rb'"[^"\n]+"\s*[:=]\s*("[^"]*"|-?[\d.]+)', data))
    if not fields:
        return value
    one = chance.choice(fields)
    return data[: one.start(1)] + value + data[one.end(1) :]


BYTES: tuple[ByteMutator, ...] = (flip_bits, replace_pieces, cut_off, lose_or_repeat, concatenate)
TEXT: tuple[ByteMutator, ...] = (*BYTES, odd_number, repeat_field, deep_nesting)


def second_list(chance: random.Random, data: bytes) -> bytes:
    """Add another traceEvents to the same document."""
    try:
        events = json.dumps(json.loads(data)["traceEvents"][: chance.randrange(1, 9)])
    except (ValueError, KeyError, TypeError):
        return data
    return data.rstrip()[:-1] + f', "traceEvents": {events}}}'.encode()


def recompressed(chance: random.Random, data: bytes) -> bytes:
    """Mutate the text in a gzip, or add blanks that compress by a thousand."""
    text = gzip.decompress(data)
    return gzip.compress(chance.choice([*TEXT, _blanks])(chance, text), 1)


def grown(chance: random.Random, data: bytes) -> bytes:
    """Compress the file, with blanks or deep nesting in it."""
    return gzip.compress(chance.choice([_blanks, deep_nesting])(chance, data), 1)


def _blanks(chance: random.Random, data: bytes) -> bytes:
    return data[:1] + b" " * chance.choice([1 << 20, 1 << 25]) + data[1:]


def sql(chance: random.Random, data: bytes) -> bytes:
    """Rename or generate columns, make tables views, and give values other types."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.sqlite"
        path.write_bytes(data)
        connection = sqlite3.connect(path)
        try:
            tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            for _ in range(chance.choice([1, 2, 4])):
                _alter(chance, connection, chance.choice(tables))
            connection.commit()
        except (sqlite3.Error, IndexError, UnicodeDecodeError):
            return data
        finally:
            connection.close()
        return path.read_bytes()


def _alter(chance: random.Random, connection: sqlite3.Connection, table: str) -> None:
    column = chance.choice([row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')])
    value = chance.choice(["NULL", "'text'", "x'00ff'", "1.5", "-1", "9223372036854775807", "-9223372036854775808"])
    view = f'CREATE VIEW "{table}" AS SELECT * FROM "hidden_{table}"'
    ways = [
        [f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO other_{chance.randrange(99)}'],
        [f'UPDATE "{table}" SET "{column}" = {value} WHERE rowid % {chance.randrange(1, 7)} = 0'],
        [f'ALTER TABLE "{table}" RENAME TO "hidden_{table}"', view],
        [f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO o', f'ALTER TABLE "{table}" ADD "{column}" AS (o)'],
        [f'INSERT INTO "{table}" SELECT * FROM "{table}" LIMIT 5'],
    ]
    for statement in chance.choice(ways):
        connection.execute(statement)


def packets(chance: random.Random, data: bytes) -> bytes:
    """Set fields of packets to odd values, repeat and drop packets, and change their order."""
    trace = perfetto_trace_pb2.Trace.FromString(data)
    for _ in range(chance.choice([1, 3, 9])):
        at = chance.randrange(len(trace.packet))
        way = chance.random()
        if way < 0.15:
            trace.packet.append(trace.packet[at])
        elif way < 0.3:
            del trace.packet[at]
        else:
            _odd_field(chance, trace.packet[at])
        if not trace.packet:
            break
    return bytes(trace.SerializeToString())


def packed(chance: random.Random, data: bytes) -> bytes:
    """Add compressed packets: copies of the packets, packed once or several times, or no packets."""
    held = chance.choice([data, data, data[: chance.randrange(len(data))], b"\x0a\xff", b"junk", bytes(1 << 25)])
    for _ in range(chance.choice([1, 2, 30])):
        held = perfetto_trace_pb2.Trace(packet=[{"compressed_packets": zlib.compress(held, 1)}]).SerializeToString()
    return data + held


def _odd_field(chance: random.Random, message: Any) -> None:
    """Set a field of a message, or of one inside it, to an odd value of its type."""
    fields = message.ListFields()
    if not fields:
        return
    field, value = chance.choice(fields)
    inside = list(value) if field.is_repeated else [value]
    if inside and hasattr(inside[0], "ListFields"):
        _odd_field(chance, chance.choice(inside))
        return
    for odd_value in chance.sample(
        [0, 1, -1, 7, 2**31, 2**62, 2**63 - 1, 2**64 - 1, "", "x", "metrics: k", b"\xff"], 12
    ):
        try:
            if field.is_repeated:
                value[:] = [odd_value]
            else:
                setattr(message, field.name, odd_value)
        except (TypeError, ValueError, OverflowError):
            continue
        return


def opcodes(chance: random.Random, data: bytes) -> bytes:
    """A pickle with shared references, a memo index that no list holds, a huge integer, or a class."""
    shared: Any = ["x"]
    for _ in range(chance.choice([8, 30, 200])):
        shared = [shared] * 10
    blob = b"\x80\x04\x8b\xff\xff\xff\x7f" + b"\xff" * 64 + b"."
    memo = b"\x80\x04Nr" + chance.choice([1 << 12, 1 << 28, (1 << 32) - 1]).to_bytes(4, "little") + b"."
    held = pickle.loads(data)
    ways = [
        memo,
        blob,
        b"cos\nsystem\n(S'true'\ntR.",
        pickle.dumps(10**5000),
        pickle.dumps({**held, "segments": shared}),
    ]
    framed = pickle.dumps(
        {**held, "device_traces": [[{"action": "alloc", "addr": i, "frames": shared} for i in range(50)]]}
    )
    return chance.choice([*ways, framed, pickle.dumps(held, protocol=chance.randrange(6))])


# Folders


def missing(chance: random.Random, files: dict[str, bytes]) -> None:
    del files[chance.choice(list(files))]


def doubled(chance: random.Random, files: dict[str, bytes]) -> None:
    """A rank's file twice, under another name or in a folder of its own."""
    name = chance.choice(list(files))
    files[chance.choice([f"copy_{name}", "rank7.json", f"other/{name}"])] = files[name]


def foreign(chance: random.Random, files: dict[str, bytes]) -> None:
    """A file that is no rank of this job: another job's, damaged, empty, or no trace."""
    data = chance.choice(list(files.values()))
    elsewhere = data.replace(b'"world_size": 2', b'"world_size": 64').replace(b'"ts": ', b'"ts": 55000000')
    way = chance.choice(
        [elsewhere, b"", b"{}", b"junk", b"[]", cut_off(chance, data), flip_bits(chance, data), b'{"traceEvents": []}']
    )
    files[chance.choice(["rank2.json", "rank0.json", "notes.json", "rank-99999999999.json", "rank2.json.gz"])] = way


def world(chance: random.Random, files: dict[str, bytes]) -> None:
    """Another number of ranks, or another rank, than there is."""
    name = chance.choice(list(files))
    field = chance.choice([b"world_size", b"rank", b"Group size"])
    value = chance.choice(["0", "-1", "1", "3", "1000000", str(2**31), str(2**63), "1e30", '"2"', "null", "[]", "1.5"])
    files[name] = re.sub(rb'"%s": \d+' % field, b'"%s": %s' % (field, value.encode()), files[name])


def crowd(chance: random.Random, files: dict[str, bytes]) -> None:
    """Thousands of files without a trace, or hundreds of the same one."""
    empty = chance.random() < 0.5
    data = b"" if empty else next(iter(files.values()))
    files.update({f"rank{100 + i}.json": data for i in range(10_000 if empty else 30)})


FOLDERS: tuple[FolderMutator, ...] = (missing, doubled, doubled, foreign, foreign, world, world)
