"""The cache of traces and analyses."""

import os
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
from click.testing import CliRunner
from kineto_files import TRACES, assert_same, load_events, op, shared_trace
from pandas.testing import assert_frame_equal

from tracekit.analyzers.core import InputError
from tracekit.analyzers.results import Analysis
from tracekit.analyzers.trace import Trace, cache, reading, store
from tracekit.answer import analyzing
from tracekit.cli import main
from tracekit.reports.answer.export import to_json


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """The cache's folder, which holds traces of any size."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.setattr(cache, "LEAST_ROWS", 1)
    return tmp_path / "caches" / "tracekit"


@pytest.fixture
def reads(monkeypatch):
    """Collects the files that were read instead of taken from the cache."""
    reads, load = [], reading.load
    monkeypatch.setattr(reading, "load", lambda path, **more: reads.append(path) or load(path, **more))
    return reads


@pytest.fixture
def trace_path(tmp_path):
    load_events(tmp_path, op("first"), op("second"))
    return tmp_path / "trace.json"


@pytest.mark.parametrize("name", TRACES)
def test_a_trace_is_what_it_was(shared, tmp_path, name):
    trace = reading.load(shared_trace(shared, name))
    with (tmp_path / "kept").open("wb") as file:
        store.save(trace, file)
    again = store.load(tmp_path / "kept", Trace)
    assert_same(again, trace)
    for table in ("host", "device", "problems"):
        assert getattr(again, table).dtypes.equals(getattr(trace, table).dtypes)


@pytest.mark.usefixtures("kept")
def test_the_second_look_reads_nothing(reads, trace_path):
    first, second = cache.load(trace_path), cache.load(trace_path)
    assert_same(first, second)
    assert reads == [trace_path]


@pytest.mark.usefixtures("kept")
def test_another_name_or_a_run_folder_is_the_same_trace(shared, reads, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    shutil.copy(shared_trace(shared, "cpu_only"), run / "trace.json.gz")
    shutil.copy(shared_trace(shared, "cpu_only"), tmp_path / "other.gz")
    assert_same(cache.load(run), cache.load(tmp_path / "other.gz"))
    assert reads == [run]


@pytest.mark.usefixtures("kept")
def test_an_edit_that_keeps_size_and_time_is_seen(trace_path):
    cache.load(trace_path)
    stat = trace_path.stat()
    trace_path.write_bytes(trace_path.read_bytes().replace(b"second", b"2nd op"))
    os.utime(trace_path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert trace_path.stat().st_size == stat.st_size
    assert cache.load(trace_path).host["name"].tolist() == ["first", "2nd op"]


def test_other_code_reads_anew(kept, reads, trace_path, monkeypatch):
    cache.load(trace_path)
    monkeypatch.setattr(cache, "_code_digest", lambda _: "other")
    cache.load(trace_path)
    assert len(reads) == 2 and len(list(kept.iterdir())) == 2


def damages(raw):
    yield b""
    yield raw[:-1]
    yield raw[: len(raw) // 3]
    for at in (3, 20, 40, len(raw) // 2, len(raw) - 1):
        yield raw[:at] + bytes([raw[at] ^ 64]) + raw[at + 1 :]


def test_a_damaged_entry_is_replaced(kept, reads, trace_path):
    trace = cache.load(trace_path)
    (entry,) = kept.iterdir()
    raw = entry.read_bytes()
    for count, damaged in enumerate(damages(raw), 2):
        entry.write_bytes(damaged)
        assert_same(cache.load(trace_path), trace)
        assert len(reads) == count and entry.read_bytes() == raw


def test_the_least_recently_used_go_first(kept, tmp_path, monkeypatch):
    def path_of(number):
        load_events(tmp_path, *[op(f"op {number}")] * 100)
        return (tmp_path / "trace.json").rename(tmp_path / f"{number}.json")

    paths = [path_of(number) for number in range(4)]
    for age, path in enumerate(paths[:3]):
        cache.load(path)
        for entry in kept.iterdir():
            if entry.stat().st_mtime > len(paths):
                os.utime(entry, (age, age))
    entries = {entry.stat().st_mtime: entry for entry in kept.iterdir()}
    cache.load(paths[0])  # used again
    monkeypatch.setattr(cache, "MOST_BYTES", 2 * entries[1.0].stat().st_size + 10)
    cache.load(paths[3])
    left = set(kept.iterdir())
    assert entries[0.0] in left and len(left) == 2 and not {entries[1.0], entries[2.0]} & left


def test_small_traces_and_broken_ones_are_not_kept(kept, trace_path, monkeypatch):
    monkeypatch.setattr(cache, "LEAST_ROWS", 3)
    cache.load(trace_path)
    trace_path.write_text("no trace")
    with pytest.raises(InputError):
        cache.load(trace_path)
    assert not kept.exists()


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("content", [None, b""])
def test_what_cannot_be_read_is_explained_as_without_a_cache(tmp_path, content):
    path = tmp_path / "trace.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError) as cached:
        cache.load(path)
    with pytest.raises(InputError) as read:
        reading.load(path)
    assert str(cached.value) == str(read.value)


def test_where_nothing_can_be_written_nothing_is_kept(tmp_path, reads, trace_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(cache, "LEAST_ROWS", 1)
    assert_same(cache.load(trace_path), cache.load(trace_path))
    assert len(reads) == 2


def test_an_interruption_leaves_nothing_behind(kept, trace_path, monkeypatch):
    def interrupted(_, file):
        file.write(b"half of it")
        raise KeyboardInterrupt

    monkeypatch.setattr(store, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        cache.load(trace_path)
    assert list(kept.iterdir()) == []


@pytest.mark.usefixtures("kept")
def test_a_pipe_is_read_once(tmp_path, trace_path):
    os.mkfifo(tmp_path / "pipe")
    with ThreadPoolExecutor() as other:
        written = other.submit((tmp_path / "pipe").write_bytes, trace_path.read_bytes())
        assert_same(cache.load(tmp_path / "pipe"), cache.load(trace_path))
        assert written.result() == trace_path.stat().st_size


@pytest.mark.parametrize(("options", "entries"), [([], 2), (["--no-cache"], 0)])
@pytest.mark.parametrize("page", [False, True])
def test_the_commands_keep_a_trace_and_its_analysis_unless_told_not_to(kept, shared, tmp_path, page, options, entries):
    trace = shutil.copy(shared_trace(shared, "cpu_only"), tmp_path)
    output = ["-o", str(tmp_path / "page.html")] if page else []
    assert CliRunner().invoke(main, ["analyze", str(trace), *output, *options]).exit_code == 0
    assert len(list(kept.glob("*"))) == entries


@pytest.mark.parametrize("name", ["cpu_only", "h200_gpt2_fp32-eager_prefill", "v100_resnet-ddp_float-ts"])
def test_an_analysis_is_what_it_was(shared, tmp_path, name):
    once = analyzing.analyze(shared_trace(shared, name), use_cache=False)
    with (tmp_path / "kept").open("wb") as file:
        store.save(once, file)
    again = store.load(tmp_path / "kept", Analysis)
    assert to_json(again) == to_json(once)
    assert_frame_equal(again.work, once.work)


def test_an_analysis_is_kept_for_each_gpu(kept, shared):
    path = shared_trace(shared, "h100_bert-small")
    asked = [analyzing.analyze(path, gpu) for gpu in (None, "t4", "v100-sxm", None, "t4")]
    assert len(list(kept.iterdir())) == 4  # the trace, and three analyses
    assert [a.projection and a.projection.gpu.id for a in asked] == [None, "t4", "v100-sxm", None, "t4"]
