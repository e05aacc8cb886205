"""Damaged reports give an analysis or an error for people, never a traceback."""

import gzip
import random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ncu_csv import COUNTERS, PROF, details, raw

from tracekit.analyzers import analyze
from tracekit.analyzers.core import InputError, TracekitError
from tracekit.analyzers.trace import load

METRICS = {"gpu__time_duration.sum": "us", "dram__bytes.sum": "Mbyte", "launch__sm_count": "SM"}
ROWS = [{"gpu__time_duration.sum": f"{i}.5", "dram__bytes.sum": "1.25", "launch__sm_count": "132"} for i in range(5)]
RAW = raw(METRICS, ROWS, ["void f<4, float>(int)", "g"])
LIGHT = "GPU Speed Of Light Throughput"
DETAILS = details([[(LIGHT, "Duration", "us", "1.5"), (LIGHT, "DRAM Throughput", "%", "61.84")]] * 3)
SMALL = {"raw": RAW, "details": DETAILS}


def outcome(path, data, analyzed=True):
    """Return the trace, which was also analyzed; None when it was refused with a reason."""
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    try:
        trace = load(path)
        if analyzed:
            analyze(trace)
    except TracekitError as error:
        assert error.what
        assert error.hint or error.why
        return None
    return trace


@pytest.fixture(scope="module")
def real():
    data = gzip.decompress((COUNTERS / "h200_gpt2_prefill.ncu.csv.gz").read_bytes())
    return b"".join(data.splitlines(keepends=True)[:12])


@pytest.mark.parametrize("page", SMALL)
def test_cut_anywhere(tmp_path, page):
    data = SMALL[page].encode()
    whole = len(outcome(tmp_path / "a.csv", data).counters)
    seen = [
        outcome(tmp_path / "a.csv", data[:end], analyzed=end % 18 == 0) for end in range(0, len(data), len(data) // 100)
    ]
    sizes = [len(trace.counters) if trace else 0 for trace in seen]
    assert sizes == sorted(sizes)
    assert sizes[0] == 0
    assert sizes[-1] >= whole - 1
    assert sum(trace is not None and "truncated" in set(trace.problems["code"]) for trace in seen) > 5


def test_a_real_report_cut_at_every_second_percent(tmp_path, real):
    sizes = []
    for percent in range(0, 101, 2):
        trace = outcome(tmp_path / "a.csv", real[: len(real) * percent // 100], analyzed=percent % 20 == 0)
        sizes.append(len(trace.counters) if trace else 0)
    assert sizes == sorted(sizes)
    assert (sizes[0], sizes[-1]) == (0, 8)


def test_a_value_that_is_cut_is_not_taken(tmp_path):
    end = RAW.rindex("1.25") + 3
    trace = outcome(tmp_path / "a.csv", RAW[:end])
    assert trace.counters["dram_bytes"].tolist() == [1_250_000] * 4
    assert trace.problems.set_index("code")["count"]["truncated"] == 1


def test_a_gzip_that_is_cut(tmp_path, real):
    packed = gzip.compress(real)
    trace = outcome(tmp_path / "a.csv.gz", packed[: len(packed) * 3 // 4])
    assert trace is not None
    assert "truncated" in set(trace.problems["code"])


@pytest.mark.parametrize("column", ["Kernel Name", "ID", "Grid Size", "Block Size", "Device", "CC", "Stream", *METRICS])
def test_a_column_that_is_not_there(tmp_path, column):
    trace = outcome(tmp_path / "a.csv", RAW.replace(f'"{column}"', '"Other"'))
    assert (trace is None) == (column in ("Kernel Name", "ID"))


@pytest.mark.parametrize("column", ["Section Name", "Metric Name", "Metric Unit", "Metric Value", "Process ID"])
def test_a_column_of_details_that_is_not_there(tmp_path, column):
    outcome(tmp_path / "a.csv", DETAILS.replace(f'"{column}"', '"Other"'))


def test_broken_lines_cost_only_themselves(tmp_path):
    lines = RAW.splitlines(keepends=True)
    lines[4] = lines[4].replace('","', '",""', 1)
    lines[5] = 'a line of the program, with a " in it\n'
    lines.insert(6, "==PROF== Profiling\n")
    trace = outcome(tmp_path / "a.csv", "".join(lines))
    assert len(trace.counters) == 3
    assert trace.problems.set_index("code")["count"]["skipped-events"] == 2


def test_output_of_the_program_may_come_before_the_header(tmp_path):
    trace = outcome(tmp_path / "a.csv", 'step 1, loss "3.2"\n\n' + PROF + RAW)
    assert len(trace.counters) == 5


def test_without_units_values_are_taken_as_they_are(tmp_path):
    trace = outcome(tmp_path / "a.csv", raw(METRICS, [{**ROWS[0], "gpu__time_duration.sum": "1e-6"}], units=False))
    assert trace.counters["duration_ns"].tolist() == [1000]


@pytest.mark.parametrize(
    "value", ["", "n/a", "nan", "inf", "-5", "1e300", "9" * 400, "1,2.3,4", "0x10", "\N{INFINITY}"]
)
def test_values_that_are_none(tmp_path, value):
    rows = [dict.fromkeys(METRICS, value), ROWS[1]]
    trace = outcome(tmp_path / "a.csv", raw(METRICS, rows))
    assert trace.counters["duration_ns"].tolist()[1] == 1500
    assert trace.counters["duration_ns"].tolist()[0] == -1
    assert trace.problems.set_index("code")["count"]["missing-duration"] == 1


def test_a_header_that_lost_a_quote_is_none(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text((PROF + RAW).replace('"ID"', 'ID"', 1))
    with pytest.raises(InputError):
        load(path)


def test_nothing_below_the_header(tmp_path):
    for lines in (1, 2, 3):
        path = tmp_path / "a.csv"
        path.write_text("".join(RAW.splitlines(keepends=True)[:lines]))
        with pytest.raises(InputError) as caught:
            load(path)
        assert caught.value.hint


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), page=st.sampled_from(sorted(SMALL)), flips=st.integers(1, 30))
def test_bytes_flipped(tmp_path, seed, page, flips):
    source = random.Random(seed)
    data = bytearray(SMALL[page].encode())
    for _ in range(flips):
        data[source.randrange(len(data))] = source.choice(b'",.\n\r0(<x\x00\xff=')
    outcome(tmp_path / "a.csv", bytes(data))


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_fields_of_a_real_report_dropped(tmp_path, real, seed):
    source = random.Random(seed)
    lines = real.decode().splitlines()
    for _ in range(source.randrange(1, 6)):
        at = source.randrange(len(lines))
        fields = lines[at].split('","')
        del fields[source.randrange(len(fields))]
        lines[at] = '","'.join(fields)
    outcome(tmp_path / "a.csv", "\n".join(lines))


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.text(max_size=60), size=st.text(alphabet="(), 0123456789x-", max_size=40))
def test_names_and_sizes_of_any_kind(tmp_path, name, size):
    report = RAW.replace("g", name.replace('"', '""')).replace("(8, 3, 2)", size)
    outcome(tmp_path / "a.csv", report.encode("utf-8", "replace"))


@pytest.mark.parametrize("size", [f"({'1' * 5000}, 1, 1)", f"({'1' * 5000}"])
def test_a_size_of_5000_digits_is_unknown(tmp_path, size):
    trace = outcome(tmp_path / "a.csv", RAW.replace("(8, 3, 2)", size))
    assert trace.counters["blocks"].tolist() == [-1] * 5


SHARES = {
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "dram_throughput",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": "sm_throughput",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "occupancy",
}


@pytest.mark.parametrize("metric", SHARES)
@pytest.mark.parametrize(
    ("percent", "share"), [("88", 0.88), ("100.4", 1.0), ("1234", None), ("9e11", None), ("-1", None)]
)
def test_a_share_above_100_percent_is_not_believed(tmp_path, metric, percent, share):
    report = raw({**METRICS, metric: "%"}, [{**ROWS[0], metric: percent}])
    trace = outcome(tmp_path / "a.csv", report, analyzed=percent == "1234")
    (value,) = trace.counters[SHARES[metric]]
    codes = trace.problems.set_index("code")["count"]
    assert (value == share) if share else np.isnan(value)
    assert codes.get("impossible-values", 0) == (share is None)


def test_more_bytes_than_any_memory_moves_are_not_believed(tmp_path):
    trace = outcome(tmp_path / "a.csv", raw(METRICS, [{**ROWS[1], "dram__bytes.sum": "9e11"}, ROWS[2]]))
    assert trace.counters["dram_bytes"].isna().tolist() == [True, False]
    assert trace.problems.set_index("code")["count"]["impossible-values"] == 1


@pytest.mark.parametrize("number", ["x", "", "-1"])
@pytest.mark.parametrize("page", SMALL)
def test_a_row_without_its_number_is_counted(tmp_path, page, number):
    head, row, rest = SMALL[page].partition('"1","7","python3"')
    trace = outcome(tmp_path / "a.csv", head + f'"{number}","7","python3"' + rest, analyzed=False)
    whole = outcome(tmp_path / "a.csv", head + row + rest, analyzed=False)
    assert "skipped-events" not in set(whole.problems["code"])
    assert trace.problems.set_index("code")["count"]["skipped-events"] == 1


def test_two_reports_in_one_file(tmp_path):
    same = outcome(tmp_path / "a.csv", RAW + RAW)
    assert len(same.counters) == 10
    assert "skipped-events" not in set(same.problems["code"])
    other = outcome(tmp_path / "a.csv", RAW + RAW.replace("dram__bytes.sum", "lts__t_bytes.sum"))
    assert len(other.counters) + other.problems.set_index("code")["count"]["skipped-events"] >= 10
    twice = outcome(tmp_path / "a.csv", DETAILS + DETAILS)
    assert len(twice.counters) == 3
    assert twice.problems.set_index("code")["count"]["skipped-events"] >= 9
