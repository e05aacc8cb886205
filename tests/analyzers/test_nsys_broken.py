"""Exports with tables and columns missing, values of other types, and bytes changed or lost: never a traceback."""

import random
import shutil
import sqlite3

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from nsys_files import GRAPH_TRACE, KERNEL, MEMCPY, NVTX, RUNTIME, SAMPLES, Export, gid, shared_export

from tracekit.analyzers import analyze
from tracekit.analyzers.core import TracekitError
from tracekit.analyzers.trace import HOST, load
from tracekit.analyzers.trace.nsys import host_rows
from tracekit.analyzers.trace.trace import DEVICE

READ = ["StringIds", RUNTIME, KERNEL, MEMCPY, NVTX, "TARGET_INFO_GPU", "ThreadNames", "TARGET_INFO_SESSION_START_TIME"]
RELAXED = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def check(path, analyzed=True):
    """Return the trace, None when it was refused; fail when it is neither sound nor refused with a reason."""
    try:
        trace = load(path)
    except TracekitError as error:
        assert error.what and error.why and error.hint
        return None
    for table, schema in ((trace.host, HOST), (trace.device, DEVICE)):
        assert list(table.columns) == [c.name for c in schema.columns]
        assert (table["start_ns"] >= 0).all() and (table["duration_ns"] >= 0).all()
        assert (table["start_ns"] + table["duration_ns"] < 2**62).all()
        assert not table["name"].isna().any()
    assert trace.host["thread"].between(0, len(trace.metadata.threads) - 1).all()
    assert trace.device["start_ns"].is_monotonic_increasing
    order = np.lexsort((-trace.host["duration_ns"], trace.host["start_ns"], trace.host["thread"]))
    assert (order == np.arange(len(order))).all()
    try:
        if analyzed:
            analyze(trace)
    except TracekitError as error:
        assert error.what and error.why and error.hint
    return trace


@pytest.fixture(scope="module")
def short(shared, tmp_path_factory):
    """Return the path of an export by its name: without empty tables; the larger one is a quarter as long."""
    folder = tmp_path_factory.mktemp("short")
    for name in SAMPLES:
        shutil.copyfile(shared_export(shared, name), folder / name)
        with sqlite3.connect(folder / name) as connection:
            for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
                if connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,):
                    connection.execute(f"DROP TABLE {table}")
            first, last = connection.execute(f"SELECT min(start), max(start) FROM {KERNEL}").fetchone()
            for table in (RUNTIME, KERNEL, MEMCPY, NVTX) if name == SAMPLES[1] else ():
                connection.execute(f"DELETE FROM {table} WHERE start > {first + (last - first) // 4}")
        connection.execute("VACUUM")
        connection.close()
    assert len(load(folder / SAMPLES[1]).device) > 500
    return lambda name: folder / name


def changed(short, name, folder, *statements):
    path = folder / "changed.sqlite"
    shutil.copyfile(short(name), path)
    with sqlite3.connect(path) as connection:
        for statement in ("PRAGMA synchronous = OFF", *statements):
            connection.execute(statement)
    connection.close()
    return path


def columns(short, name, table):
    with sqlite3.connect(f"file:{short(name)}?immutable=1", uri=True) as connection:
        names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    connection.close()
    return names


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("table", READ)
def test_tables_dropped(short, tmp_path, name, table):
    if columns(short, name, table):
        trace = check(changed(short, name, tmp_path, f"DROP TABLE {table}"))
        assert trace is not None and len(trace.host) + len(trace.device)


@pytest.mark.parametrize("table", READ)
def test_columns_dropped(short, tmp_path, table):
    """Each column is dropped alone."""
    for place, column in enumerate(columns(short, "a100_saxpy-mpi", table)):
        path = changed(short, "a100_saxpy-mpi", tmp_path, f'ALTER TABLE {table} RENAME COLUMN "{column}" TO gone')
        assert check(path, analyzed=place % 6 == 0) is not None, column


@pytest.mark.parametrize("seed", range(5))
def test_many_columns_dropped(short, tmp_path, seed):
    chance, statements = random.Random(seed), []
    for table in READ:
        for i, column in enumerate(columns(short, "h100x2_emit-nvtx", table)):
            if chance.random() < 0.2:
                statements.append(f'ALTER TABLE {table} RENAME COLUMN "{column}" TO gone_{i}')
    check(changed(short, "h100x2_emit-nvtx", tmp_path, *statements))


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize(
    "value", ["NULL", "'text'", "x'00ff'", "1.5", "-1", "9223372036854775807", "-9223372036854775808"]
)
def test_values_of_other_types(short, tmp_path, name, value):
    chance = random.Random(f"{name} {value}")
    statements = []
    for table in READ:
        for column in columns(short, name, table):
            if (table, column) == ("StringIds", "id"):
                continue  # a primary key contains nothing but integers
            statements.append(
                f'UPDATE OR IGNORE {table} SET "{column}" = {value} WHERE rowid % 7 = {chance.randrange(7)}'
            )
    check(changed(short, name, tmp_path, *statements))


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("percent", [1, 29, 57, 99])
def test_cut_off(short, tmp_path, name, percent):
    content = short(name).read_bytes()
    path = tmp_path / "cut.sqlite"
    path.write_bytes(content[: len(content) * percent // 100])
    trace = check(path)
    assert trace is None or "truncated" in set(trace.problems["code"])
    assert percent < 40 or len(trace.device)


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("seed", range(3))
def test_bytes_changed(short, tmp_path, name, seed):
    chance = random.Random(f"{name} {seed}")
    content = bytearray(short(name).read_bytes())
    for _ in range(chance.choice([1, 20, 500, 5000])):
        content[chance.randrange(16, len(content))] = chance.randrange(256)
    path = tmp_path / "bytes.sqlite"
    path.write_bytes(content)
    check(path)


def test_times_that_cannot_be(tmp_path):
    made = Export().kernel("k", 10**9, 10**9 + 5, 1).kernel("zero", 2 * 10**9, 2 * 10**9 - 7, 2)
    made.kernel("late", 2**62, 2**62 + 9, 3).kernel("long", 3 * 10**9, 2**61, 4).kernel("next", 4 * 10**9, 5 * 10**9, 5)
    trace = made.load(tmp_path)
    assert trace.device["name"].tolist() == ["k", "zero", "long", "next"]
    assert trace.device["duration_ns"].tolist() == [5, 0, 2 * 10**9, 10**9]
    problems = dict(zip(trace.problems["code"], trace.problems["count"], strict=True))
    assert problems == {"implausible-time": 1, "negative-duration": 1, "capped-duration": 1, "no-host-events": 1}


def test_pages_in_a_circle_end(tmp_path):
    """The root of a table points to itself as every one of its children."""
    made = Export()
    for i in range(3000):
        made.kernel("k", i * 10, i * 10 + 5, i)
    path = made.write(tmp_path / "circle.sqlite")
    connection = sqlite3.connect(path)
    (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", [KERNEL]).fetchone()
    (size,) = connection.execute("PRAGMA page_size").fetchone()
    connection.close()
    content = bytearray(path.read_bytes())
    page = (root - 1) * size
    assert content[page] == 5
    cells = int.from_bytes(content[page + 3 : page + 5], "big")
    first = int.from_bytes(content[page + 12 : page + 14], "big")
    child = content[page + first : page + first + 4]
    for i in range(cells):
        at = int.from_bytes(content[page + 12 + 2 * i : page + 14 + 2 * i], "big")
        content[page + at : page + at + 4] = child
    path.write_bytes(content)
    assert check(path) is not None


values = st.none() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=5) | st.floats() | st.binary(max_size=3)
times = st.integers(0, 10**6) | values


@given(
    ranges=st.lists(st.tuples(times, times, st.sampled_from([34, 59, 60, 75]) | values, values, values), max_size=5),
    kernels=st.lists(st.tuples(times, times, values, values, values, values), max_size=5),
    graphs=st.lists(st.tuples(times, times, values), max_size=2),
)
@example(ranges=[], kernels=[(2**62, 0, None, None, None, None)], graphs=[(2**62, None, None)])
@RELAXED
def test_any_values(tmp_path, ranges, kernels, graphs):
    made = Export().launched("k", 100, 200, 300, 1)
    for start, end, kind, text, domain in ranges:
        made.row(NVTX, start=start, end=end, eventType=kind, text=text, domainId=domain, globalTid=gid(7, 7))
    for start, end, name, pid, grid, node in kernels:
        sizes = {"gridX": grid, "gridY": grid, "gridZ": 1, "graphNodeId": node}
        made.row(KERNEL, start=start, end=end, demangledName=name, globalPid=pid, correlationId=name, **sizes)
    for start, end, graph in graphs:
        made.row(GRAPH_TRACE, start=start, end=end, graphId=graph)
    path = tmp_path / "any.sqlite"
    path.unlink(missing_ok=True)
    assert check(made.write(path)) is not None


@given(st.text(max_size=40) | st.from_regex(r"(aten::)?\w+(, seq = \d+)?(, op_id = \d+)?(, sizes = \[[\[\]\d, ]*\])?"))
@RELAXED
def test_any_range_name(text):
    parsed = host_rows.parse(text)
    assert text.startswith(parsed.name)
    assert parsed.is_op or parsed.sequence < 0


def test_a_name_made_to_be_slow_is_not():
    name = ", sizes = [" * 5000
    assert host_rows.parse(name).name == name
