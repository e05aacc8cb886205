"""Pipes, devices and damaged files, as inputs and in the cache: a clear answer, never a hang or a traceback."""

import gzip
import os
import struct
import threading
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from kineto_files import load_events, op

from tracekit.analyzers.core import InputError
from tracekit.analyzers.trace import Trace, cache, reading, source, store
from tracekit.cli import main

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")


@pytest.fixture(autouse=True)
def _brief(monkeypatch):
    monkeypatch.setattr(source, "_PIPE_SECONDS", 0.2)


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """The cache's folder, which holds traces of any size."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.setattr(cache, "LEAST_ROWS", 1)
    return tmp_path / "caches" / "tracekit"


@pytest.fixture
def trace_path(tmp_path):
    load_events(tmp_path, op("first"), op("second"))
    return tmp_path / "trace.json"


@pytest.fixture
def entry(kept, trace_path):
    """The one entry of the cache."""
    cache.load(trace_path)
    return next(kept.glob("*.kept"))


def names(path):
    return cache.load(path).host["name"].tolist()


@pytest.mark.parametrize("kind", ["pipe", "folder", "link to nothing", "link to itself", "empty", "not ours"])
def test_an_entry_of_another_kind_is_not_used(entry, trace_path, kind):
    entry.unlink()
    {
        "pipe": lambda: os.mkfifo(entry),
        "folder": entry.mkdir,
        "link to nothing": lambda: entry.symlink_to("nowhere"),
        "link to itself": lambda: entry.symlink_to(entry),
        "empty": entry.touch,
        "not ours": lambda: entry.write_bytes(b"\x00" * 100),
    }[kind]()
    assert names(trace_path) == ["first", "second"]
    assert kind == "folder" or entry.is_file()


def test_pipes_beside_the_entries_are_left_alone(entry, kept, trace_path):
    os.mkfifo(kept / "other.kept")
    entry.unlink()
    assert names(trace_path) == ["first", "second"]


def test_every_damaged_byte_is_noticed(entry, trace_path):
    whole = entry.read_bytes()
    for at in [*range(64), *range(64, len(whole), max(1, len(whole) // 64))]:
        entry.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        with pytest.raises(store.BadStoreError):
            store.load(entry, Trace)
    for size in range(0, len(whole), max(1, len(whole) // 32)):
        entry.write_bytes(whole[:size])
        with pytest.raises(store.BadStoreError):
            store.load(entry, Trace)
    assert names(trace_path) == ["first", "second"]


@pytest.mark.parametrize("rows", [-1, 2**40, 2**62])
@pytest.mark.parametrize("kind", ["int64", "object", "float64,", "M8[s]", "V0"])
def test_a_description_that_promises_too_much_is_refused(tmp_path, rows, kind):
    import zlib

    table = {"rows": rows, "columns": [{"name": "x", "kind": kind}]}
    told = msgspec.msgpack.encode({"metadata": {"format": "x"}, "host": table, "device": table, "problems": table})
    sums = struct.pack("<IQI", zlib.crc32(told), len(told), 0)
    (tmp_path / "entry").write_bytes(store._MAGIC + sums + told)
    with pytest.raises(store.BadStoreError):
        store.load(tmp_path / "entry", Trace)


def test_a_length_beyond_the_file_is_refused(tmp_path):
    (tmp_path / "entry").write_bytes(store._MAGIC + struct.pack("<IQI", 1, 2**64 - 1, 0))
    with pytest.raises(store.BadStoreError):
        store.load(tmp_path / "entry", Trace)


def test_a_file_that_is_removed_while_it_is_read(kept, trace_path, monkeypatch):
    load = reading.load

    def removed_after(path, **options):
        trace = load(path, **options)
        Path(path).unlink()
        return trace

    monkeypatch.setattr(reading, "load", removed_after)
    assert names(trace_path) == ["first", "second"]
    assert not kept.exists()


def test_a_pipe_that_nobody_writes_to_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="is an empty pipe"):
        reading.load(tmp_path / "pipe")
    result = CliRunner().invoke(main, ["analyze", str(tmp_path / "pipe")])
    assert (result.exit_code, "is an empty pipe" in result.stderr) == (1, True)


@pytest.mark.parametrize("compressed", [False, True])
def test_a_pipe_is_read_as_a_file_is(tmp_path, trace_path, compressed):
    os.mkfifo(tmp_path / "pipe")
    text = trace_path.read_bytes()
    writer = threading.Thread(
        target=lambda: (tmp_path / "pipe").write_bytes(gzip.compress(text) if compressed else text)
    )
    writer.start()
    assert names(tmp_path / "pipe") == ["first", "second"]
    writer.join()


def test_a_database_cannot_come_through_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    content = b"SQLite format 3\0" + bytes(4096)
    writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_bytes(content))
    writer.start()
    with pytest.raises(InputError):
        reading.load(tmp_path / "pipe")
    writer.join()


@pytest.mark.parametrize("device", ["/dev/null", "/dev/zero"])
def test_a_device_is_refused(device):
    if not Path(device).exists():
        pytest.skip("needs this device")
    result = CliRunner().invoke(main, ["analyze", device])
    assert (result.exit_code, "is a device" in result.stderr) == (1, True)
