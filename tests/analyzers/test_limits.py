"""Files that others wrote take a bounded amount of memory and time, and the error names the limit."""

import gzip
import json
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tracekit.analyzers.core import InputError, TracekitError, limits

HINT = "Write it again."
ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="memory is bounded on Linux only")


def refused(path, decode=json.loads):
    with pytest.raises(InputError) as error:
        limits.decoded(path, decode, HINT)
    return error.value


def written(tmp_path, data):
    path = tmp_path / "file"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_sound_file_is_decoded_compressed_or_not(tmp_path, pack):
    assert limits.decoded(written(tmp_path, pack(b'{"a": [1]}')), json.loads, HINT) == {"a": [1]}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"\xff",
        b"[" * 100_000,
        gzip.compress(b"[1]")[:-9],
        gzip.compress(b"[1]") + b"x",
        gzip.compress(json.dumps(list(range(99))).encode())[:30] + b"\0" * 9,
    ],
    ids=["empty", "cut off", "not UTF-8", "deep", "gzip cut off", "trailing", "gzip damaged"],
)
def test_a_damaged_file_is_an_input_error_with_the_hint(tmp_path, data):
    assert refused(written(tmp_path, data)).hint == HINT


def test_what_the_decoder_does_not_expect_is_damage(tmp_path):
    assert "It is damaged: 'a'." in str(refused(written(tmp_path, b"{}"), lambda data: json.loads(data)["a"]))


def test_a_folder_and_a_missing_file_are_refused(tmp_path):
    assert refused(tmp_path).why == "It is not a file."
    assert refused(tmp_path / "none").why == "No such file or directory."


def test_the_error_names_the_limit_and_how_to_raise_it(tmp_path, monkeypatch):
    path = written(tmp_path, gzip.compress(b" " * 2000 + b"1"))
    monkeypatch.setenv("TRACEKIT_LIMIT_DOCUMENT", "1000")
    error = refused(path)
    assert error.what == f"{path} has more than 1,000 bytes."
    assert "TRACEKIT_LIMIT_DOCUMENT" in error.hint
    monkeypatch.setenv("TRACEKIT_LIMIT_DOCUMENT", "3000")
    assert limits.decoded(path, json.loads, HINT) == 1


def test_a_limit_that_is_no_number_is_an_error(monkeypatch):
    monkeypatch.setenv("TRACEKIT_LIMIT_OBJECTS", "many")
    with pytest.raises(TracekitError, match="Set it to a number of objects"):
        limits.OBJECTS.check(1, "job")


@ON_LINUX
@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x04Nr" + (1 << 28).to_bytes(4, "little") + b".",
        gzip.compress(b"\x80\x04(" + b"\x8f" * 4_000_000 + b"l."),
    ],
    ids=["memo", "sets"],
)
def test_memory_is_bounded_while_a_file_is_decoded(tmp_path, data, monkeypatch):
    """The sets would take 0.9 GB, the memo 4.3 GB."""
    monkeypatch.setenv("TRACEKIT_LIMIT_MEMORY", str(100 << 20))
    assert "104,857,600 bytes in memory" in refused(written(tmp_path, data), pickle.loads).what
    assert len(bytearray(200 << 20)) == 200 << 20  # The bound ends with the decoding.


def test_sigterm_ends_a_process_that_decodes_at_once(tmp_path):
    """Without it, the signal would wait until the decoder returns."""
    code = """
import signal, sys
from pathlib import Path
from tracekit.analyzers.core import limits
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
def decode(_):
    print("ready", flush=True)
    return max(range(10**10))  # one call
limits.decoded(Path(sys.argv[1]), decode, "")
"""
    path = written(tmp_path, b"1")
    process = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    start = time.monotonic()
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == -signal.SIGTERM
    assert time.monotonic() - start < 1


def test_the_handler_is_restored(tmp_path):
    def handler(*_):
        """Do nothing."""

    before = signal.signal(signal.SIGTERM, handler)
    try:
        limits.decoded(written(Path(tmp_path), b"1"), json.loads, HINT)
        assert signal.getsignal(signal.SIGTERM) is handler
    finally:
        signal.signal(signal.SIGTERM, before)
