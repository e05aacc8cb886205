"""Traces behind URLs."""

import builtins
import gzip
import json

import fsspec
import pytest
from click.testing import CliRunner

from tracekit.analyzers.core import InputError, MissingPackageError
from tracekit.analyzers.trace import is_url, load, shown

KERNEL = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1.0, "dur": 2.0, "args": {"stream": 7}}
TRACE = json.dumps({"traceEvents": [KERNEL]}).encode()


@pytest.fixture
def stored():
    memory = fsspec.filesystem("memory")
    memory.pipe({"/bucket/plain.json": TRACE, "/bucket/run.pt.trace.json.gz": gzip.compress(TRACE)})
    yield "memory://bucket"
    memory.rm("/bucket", recursive=True)


@pytest.mark.parametrize("name", ["plain.json", "run.pt.trace.json.gz"])
def test_a_url_is_read_as_a_file_is(stored, name):
    assert load(f"{stored}/{name}").device["duration_ns"].tolist() == [2000]


def test_a_file_may_be_named_by_a_url(tmp_path):
    (tmp_path / "t.json").write_bytes(TRACE)
    assert len(load((tmp_path / "t.json").as_uri()).device) == 1


def test_a_missing_object_is_explained(stored):
    with pytest.raises(InputError) as error:
        load(f"{stored}/none.json")
    assert error.value.what == "memory://bucket/none.json cannot be read."


def test_an_unknown_scheme_is_explained():
    with pytest.raises(InputError, match="nowhere"):
        load("nowhere://bucket/trace.json")


def test_a_driver_that_fails_in_the_middle_is_explained(stored, monkeypatch):
    def fail(*_):
        raise RuntimeError("connection lost")

    monkeypatch.setattr("fsspec.implementations.memory.MemoryFile.read", fail)
    with pytest.raises(InputError, match="connection lost"):
        load(f"{stored}/plain.json")


def test_without_fsspec_the_extra_is_named(monkeypatch):
    real = builtins.__import__

    def without(name, *rest, **named):
        if name == "fsspec":
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingPackageError) as error:
        load("s3://bucket/trace.json")
    assert "fsspec[http,s3]" in error.value.hint


def test_secrets_of_a_url_are_not_shown():
    assert shown("https://me:pw@host/a.json?X-Amz-Signature=abc#x") == "https://host/a.json"
    with pytest.raises(InputError) as error:
        load("memory://bucket/none.json?token=abc")
    assert "abc" not in str(error.value)


@pytest.mark.parametrize("path", ["trace.json", "/tmp/a:b/trace.json", "C:/traces/t.json", "-", "c://x"])
def test_paths_are_no_urls(path):
    assert not is_url(path)


def test_the_report_of_a_url_is_written_here(stored, tmp_path, monkeypatch):
    from tracekit.cli import main

    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["analyze", f"{stored}/run.pt.trace.json.gz", "-o", "run.html"])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "run.html").exists()
