"""Several processes read the same as one, even if the file is damaged or a process dies."""

import gzip
import json
import multiprocessing
import random
import subprocess
import sys
from pathlib import Path

import pytest
from kineto_files import TRACES, assert_same, load_events, load_text, op, shared_text, shared_trace

from tracekit.analyzers.core import InputError, started_process
from tracekit.analyzers.trace import load
from tracekit.analyzers.trace.kineto import parallel


@pytest.fixture
def pools(monkeypatch):
    """Start workers from the second chunk on, and collect the pools that were started."""
    started = []

    class Noted(parallel.Pool):
        def __init__(self, workers):
            super().__init__(workers)
            started.append(self)

    monkeypatch.setattr(parallel, "Pool", Noted)
    monkeypatch.setattr(parallel, "ALONE_CHUNKS", 2)
    monkeypatch.setattr(parallel, "spare_cores", lambda: 2)
    return started


@pytest.fixture(scope="module")
def two_workers():
    workers = [parallel._Worker() for _ in range(2)]
    yield workers
    for worker in workers:
        worker.close()


@pytest.fixture
def kept(monkeypatch, pools, two_workers):
    """The pools, all of which have the same workers: starting two takes longer than what they read here."""
    monkeypatch.setattr(parallel, "_Worker", iter(two_workers * 2).__next__)
    monkeypatch.setattr(parallel.Pool, "__exit__", lambda *_: None)
    yield pools
    assert all(worker._process.poll() is None for worker in two_workers)


def cut_into(monkeypatch, size):
    monkeypatch.setattr("tracekit.analyzers.trace.kineto.chunks.CHUNK_BYTES", size)
    monkeypatch.setattr("tracekit.analyzers.trace.source._BLOCK_BYTES", size // 3)
    monkeypatch.setattr("tracekit.analyzers.trace.source._OUTPUT_BYTES", size // 3)


@pytest.mark.parametrize("name", [name for name in TRACES if name not in ("a100_triton", "cpu_only")])
def test_shared_traces(shared, monkeypatch, kept, name):
    with monkeypatch.context() as serial:
        serial.setattr(parallel, "spare_cores", lambda: 0)
        alone = load(shared_trace(shared, name))
    cut_into(monkeypatch, 60_000 if name != "mi300_torch-compile" else 6_000)
    assert_same(load(shared_trace(shared, name)), alone)
    assert len(kept) == 1


def mutated(text, seed):
    """Flip bytes, insert quotes and braces, leave out a stretch, and cut off the end."""
    chance, text = random.Random(seed), bytearray(text)
    for _ in range(5):
        text[chance.randrange(len(text))] ^= 1 << chance.randrange(8)
        at = chance.randrange(len(text))
        text[at:at] = chance.choice([b'"', b"}", b"{", b"\\", b"]", b"\xff"])
    start = chance.randrange(len(text))
    del text[start : start + chance.randrange(2000)]
    return bytes(text[: chance.randrange(len(text) // 2, len(text) * 2)])


@pytest.mark.parametrize("seed", range(4))
def test_mutated_traces(shared, tmp_path, monkeypatch, kept, seed):
    text = mutated(shared_text(shared, "h100_bert-small"), seed)
    cut_into(monkeypatch, 30_000)
    with monkeypatch.context() as serial:
        serial.setattr(parallel, "spare_cores", lambda: 0)
        alone = load_text(tmp_path, text)
    assert kept == []
    assert_same(load_text(tmp_path, text), alone)
    assert len(kept) == 1


def test_metadata_behind_the_events_that_was_read_ahead(tmp_path, monkeypatch, kept):
    """A list that looks like more events, many chunks long, between the events and the metadata."""
    others = [op(f"other {i}", ts=float(i)) for i in range(3000)]
    cut_into(monkeypatch, 9_000)
    events = [op(f"op {i}", ts=float(i)) for i in range(1000)]
    trace = load_text(tmp_path, json.dumps({"traceEvents": events, "others": others, "baseTimeNanoseconds": 7}))
    assert len(trace.host) == 1000 and trace.metadata.base_ns == 7 and len(kept) == 1


def test_workers_that_die_are_done_without(tmp_path, monkeypatch, pools):
    (tmp_path / "dies.py").write_text("import os, sys; sys.stdin.buffer.read(1000); os._exit(1)")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(parallel, "started_process", lambda _, **options: started_process("dies", **options))
    cut_into(monkeypatch, 9_000)
    trace = load_events(tmp_path, *(op(f"op {i}", ts=float(i)) for i in range(2000)))
    assert trace.host["name"].tolist() == [f"op {i}" for i in range(2000)] and len(pools) == 1


def test_workers_are_gone_after_an_error(tmp_path, monkeypatch, pools):
    cut_into(monkeypatch, 9_000)
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": [op(ts=float(i)) for i in range(2000)]}).encode()))
    with pytest.raises(InputError, match="bytes when decompressed"):
        load(path, max_bytes=100_000)
    assert [worker._process.poll() is not None for worker in pools[0]._workers] == [True, True]


_SCRIPT = """
from tracekit.analyzers.trace import load, source
from tracekit.analyzers.trace.kineto import chunks, parallel
chunks.CHUNK_BYTES, source._BLOCK_BYTES = 60_000, 20_000
parallel.ALONE_CHUNKS, parallel.spare_cores = 2, lambda: 1
print(len(load({path!r}).host))
"""


def test_a_script_without_a_main_guard(tmp_path):
    events = [op(f"op {i}", ts=float(i)) for i in range(2000)]
    load_events(tmp_path, *events)
    script = tmp_path / "script.py"
    script.write_text(_SCRIPT.format(path=str(tmp_path / "trace.json")))
    root = Path(__file__).parents[2]
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, env={"PYTHONPATH": str(root)})
    assert (run.stdout, run.stderr) == ("2000\n", "")


def _rows(path, answers):
    parallel.ALONE_CHUNKS, parallel.spare_cores = 2, lambda: 1
    answers.put(len(load(path).host))


def test_a_daemonic_process(shared, monkeypatch):
    cut_into(monkeypatch, 60_000)
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    process = context.Process(target=_rows, args=(shared_trace(shared, "h100_bert-small"), answers), daemon=True)
    process.start()
    assert answers.get(timeout=60) == len(load(shared_trace(shared, "h100_bert-small")).host)
    process.join()
