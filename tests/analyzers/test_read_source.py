"""Sources of traces, and files that are no trace."""

import gzip
import io
import json
import sys

import pytest
from click.testing import CliRunner
from kineto_files import assert_same, codes, op, shared_text, shared_trace

from tracekit.analyzers.core import InputError
from tracekit.analyzers.trace import load
from tracekit.cli import main

TEXT = json.dumps({"schemaVersion": 1, "traceEvents": [op()]}).encode()


@pytest.fixture
def sound(tmp_path):
    path = tmp_path / "sound.json"
    path.write_bytes(TEXT)
    return load(path)


@pytest.mark.parametrize("name", ["t.json", "t.gz", "t.pt.trace.json", "t"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_content_decides_not_the_name(tmp_path, sound, name, pack):
    path = tmp_path / name
    path.write_bytes(pack(TEXT))
    assert_same(load(path), sound)
    assert_same(load(str(path)), sound)


def test_gzip_of_several_members_and_padding(tmp_path, sound):
    path = tmp_path / "t.gz"
    path.write_bytes(gzip.compress(TEXT[:50]) + gzip.compress(TEXT[50:]) + bytes(512))
    assert_same(load(path), sound)


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_stdin(monkeypatch, sound, pack):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(pack(TEXT))))
    assert_same(load("-"), sound)


def test_a_run_folder_is_its_trace(tmp_path, sound):
    (tmp_path / "trace.json.gz").write_bytes(gzip.compress(TEXT))
    assert_same(load(tmp_path), sound)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "is empty"),
        (b" \n\n ", "is empty"),
        (gzip.compress(b"", mtime=0), "is empty"),
        (b"\x1f\x8b", "is empty"),
        (b"SQLite format 3\x00" + bytes(100), "is a damaged SQLite file"),
        (bytes(range(256)) * 20, "is not a trace that tracekit reads"),
        (b"hello", "is not a trace that tracekit reads"),
        ('{"traceEvents": []}'.encode("utf-16"), "is not a trace that tracekit reads"),
        (b"{}", "is not a trace"),
        (b'{"a": 1}', "is not a trace"),
        (b'{"a": ', "is not a trace"),
        (b'{"traceEvents": 5}', "is not a trace"),
        (b'{"traceEvents": []}', "contains nothing to analyze"),
        (b'{"traceEvents": [', "contains nothing to analyze"),
        (b"[]", "contains nothing to analyze"),
        (b"[1, 2, 3]", "contains nothing to analyze"),
        (b"[" * 100_000, "contains nothing to analyze"),
        (b'{"traceEvents": [' + b'{"args":' * 100_000, "contains nothing to analyze"),
        (json.dumps({"traceEvents": [op(cat="other")]}).encode(), "contains nothing to analyze"),
    ],
)
def test_what_is_no_trace(tmp_path, content, what):
    path = tmp_path / "input"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        load(path)
    assert what in caught.value.what and caught.value.why and caught.value.hint
    assert str(path) in caught.value.what


def test_missing_files_and_folders(tmp_path):
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(InputError) as caught:
            load(path)
        assert str(path) in caught.value.what and caught.value.hint


def test_a_gzip_bomb_is_refused_at_the_limit(tmp_path):
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(TEXT[:-2] + b" " * 50_000_000 + b"]}", 9))
    assert path.stat().st_size < 100_000
    with pytest.raises(InputError, match="bytes when decompressed"):
        load(path, max_bytes=20_000_000)
    assert len(load(path, max_bytes=60_000_000).host) == 1


@pytest.mark.parametrize("page", [False, True])
def test_the_limit_can_be_raised_as_the_message_says(tmp_path, page):
    path, output = tmp_path / "bomb.json.gz", ["-o", str(tmp_path / "page.html")] if page else []
    path.write_bytes(gzip.compress(TEXT[:-2] + b" " * (50_000_000 + page) + b"]}", 9))  # not cached
    said = CliRunner().invoke(main, ["analyze", str(path), *output, "--max-unpacked", "0.02"])
    assert said.exit_code == 1 and "--max-unpacked" in said.output
    assert CliRunner().invoke(main, ["analyze", str(path), *output, "--max-unpacked", "0.05"]).exit_code == 0


def test_gzip_cut_off(shared, tmp_path):
    path = tmp_path / "cut.json.gz"
    packed = shared_trace(shared, "h100_qwen1.5-0.5b").read_bytes()
    path.write_bytes(packed[: len(packed) // 2])
    trace, whole = load(path), load(shared_trace(shared, "h100_qwen1.5-0.5b"))
    assert 0 < len(trace.host) < len(whole.host)
    assert codes(trace)["truncated"] == 1
    assert "gzip data ends early" in trace.problems.set_index("code")["message"]["truncated"]


def test_gzip_damaged(shared, tmp_path):
    path = tmp_path / "damaged.json.gz"
    packed = bytearray(gzip.compress(shared_text(shared, "h100_qwen1.5-0.5b")))
    packed[len(packed) * 3 // 4] ^= 0xFF
    path.write_bytes(packed)
    trace = load(path)
    assert len(trace.host) > 1000
    assert {"truncated", "skipped-events", "bad-utf8", "repaired-events"} & set(codes(trace))


def test_reading_imports_nothing_heavy():
    import subprocess

    code = (
        "import sys, tracekit.analyzers.trace.reading; print({'plotly', 'torch', 'jinja2', 'rich'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
