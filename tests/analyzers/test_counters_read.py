import csv
import gzip

import numpy as np
import pytest
from ncu_csv import COUNTERS, PROF, details, number, raw, table_of, text

from tracekit.analyzers.trace import load
from tracekit.analyzers.trace.ncu.pages import decimal_mark, parse, scale
from tracekit.analyzers.trace.ncu.reader import COUNTERS as TABLE

FP32 = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
TENSOR = "sm__ops_path_tensor_src_{}.sum"


@pytest.fixture
def read(tmp_path):
    def of(report):
        path = tmp_path / "report.csv"
        path.write_bytes(report if isinstance(report, bytes) else report.encode())
        return load(path)

    return of


def test_a_step_of_gpt2_holds_what_its_report_says():
    path = COUNTERS / "h200_gpt2_prefill.ncu.csv.gz"
    _, _, rows = table_of(gzip.decompress(path.read_bytes()).decode())
    trace = load(path)
    counters = trace.counters
    assert list(counters.columns) == [column.name for column in TABLE.columns]
    assert len(counters) == len(rows) == len(trace.device) == 235
    assert counters["name"].tolist() == [row["Kernel Name"] for row in rows]
    assert counters["grid"].tolist() == [row["Grid Size"] for row in rows]
    assert counters["duration_ns"].tolist() == [number(row["gpu__time_duration.sum"]) for row in rows]
    fp32 = [
        sum(flops * number(row[FP32.format(op)]) for op, flops in (("fadd", 1), ("fmul", 1), ("ffma", 2)))
        for row in rows
    ]
    assert counters["fp32_flops"].tolist() == fp32
    for kind in ("read", "write"):
        moved = [number(row[f"dram__bytes_{kind}.sum"]) for row in rows]
        assert counters[f"dram_{kind}_bytes"].tolist() == moved
    assert np.allclose(counters["dram_bytes"], counters["dram_read_bytes"] + counters["dram_write_bytes"])
    assert counters["registers"].tolist() == [number(row["launch__registers_per_thread"]) for row in rows]
    assert (counters["blocks"] == [number(row["launch__grid_size"]) for row in rows]).all()
    assert (counters["threads_per_block"] == [number(row["launch__block_size"]) for row in rows]).all()
    active = [number(row["sm__warps_active.avg.pct_of_peak_sustained_active"]) / 100 for row in rows]
    assert np.allclose(counters["occupancy"], active)


def test_sums_that_were_not_collected_follow_from_their_rates(shared):
    path = shared / "ncu" / "h200_gpt2-2layer_fp32_raw.csv.gz"
    _, _, rows = table_of(gzip.decompress(path.read_bytes()).decode())
    counters = load(path).counters
    assert "dram__bytes_read.sum" not in rows[0]
    seconds = np.array([number(row["gpu__time_duration.sum"]) for row in rows]) * 1e-9
    rate = np.array([number(row["dram__bytes.sum.per_second"]) for row in rows])
    assert np.allclose(counters["dram_bytes"], seconds * rate)
    assert counters["dram_read_bytes"].isna().all()
    # A sector of device memory is active for a cycle every 32 bytes.
    assert np.allclose(counters["dram_bytes"], [32 * number(row["dram__cycles_active.sum"]) for row in rows], rtol=1e-4)
    first = counters.iloc[14]
    assert (first["grid"], first["precision"]) == ("(8, 36, 1)", "fp32")
    assert first["flops"] == pytest.approx(2 * 512 * 768 * 2304, rel=2e-3)
    assert counters["occupancy"].isna().all()


def test_attention_in_fp32_is_three_tensor_products(shared):
    """Twelve heads, 36 of 64 tiles of 64 x 64 under the causal mask, two products, three times in TF32."""
    counters = load(shared / "ncu" / "h200_gpt2-2layer_fp32_raw.csv.gz").counters.iloc[15]
    assert counters["tensor_flops"] == 3 * 12 * 36 * 2 * 2 * 64**3
    assert counters["precision"] == "tf32"


def test_details_of_a_t4(shared):
    trace = load(shared / "ncu" / "t4_details.csv")
    counters = trace.counters.iloc[0]
    assert len(trace.counters) == 1
    assert counters["name"].startswith("copy_blocked[v1,")
    assert (counters["blocks"], counters["threads_per_block"], counters["registers"]) == (1024, 256, 32)
    assert counters["duration_ns"] == 21_058_944
    assert counters["dram_bytes"] == pytest.approx(196_456_177_859.63 * 21_058_944e-9)
    assert (counters["dram_throughput"], counters["sm_throughput"]) == pytest.approx((0.6184, 0.0130))
    assert counters["occupancy"] == pytest.approx(0.9626)
    assert np.isnan(counters["flops"])
    assert trace.metadata.devices[0].sms == 40
    assert trace.metadata.devices[0].compute_capability == (7, 5)


def test_a_name_that_occurs_twice_is_known_by_section_and_unit(read):
    light, memory = "GPU Speed Of Light Throughput", "Memory Workload Analysis"
    cells = [(light, "Memory Throughput", "%", "61.84"), (memory, "Memory Throughput", "Gbyte/second", "2.50")]
    counters = read(details([[(light, "Duration", "usecond", "4.00"), *cells]])).counters
    assert counters["dram_bytes"].tolist() == [pytest.approx(2.5e9 * 4e-6)]
    assert counters["duration_ns"].tolist() == [4000]


def test_details_may_hold_the_names_of_the_tool(read):
    cells = [("Own", "gpu__time_duration.sum", "ns", "5"), ("Own", "dram__bytes_read.sum", "Kbyte", "1.5")]
    counters = read(details([cells, cells])).counters
    assert counters["dram_read_bytes"].tolist() == [1500, 1500]
    assert counters["duration_ns"].tolist() == [5, 5]


@pytest.mark.parametrize(
    ("unit", "factor", "base"),
    [
        ("nsecond", 1e-9, "second"), ("usecond", 1e-6, "second"), ("ns", 1e-9, "second"), ("second", 1, "second"),
        ("msecond", 1e-3, "second"), ("us", 1e-6, "second"), ("byte", 1, "byte"), ("Kbyte", 1e3, "byte"),
        ("Mbyte", 1e6, "byte"), ("Tbyte/second", 1e12, "byte/second"), ("byte/s", 1, "byte/second"),
        ("inst/cycle", 1, "inst/cycle"), ("cycle/nsecond", 1e9, "cycle/second"), ("Ghz", 1e9, "hz"), ("%", 1, "%"),
        ("", 1, ""), ("SM", 1, "SM"), ("register/thread", 1, "register/thread"),
    ],
)  # fmt: skip
def test_units_scaled_or_not(unit, factor, base):
    assert scale(unit) == (pytest.approx(factor), base)


@pytest.mark.parametrize("mark", [".", ","])
@pytest.mark.parametrize("group", [",.", "\N{NO-BREAK SPACE}", "'", ""])
def test_numbers_of_any_locale(mark, group):
    thousands = {",": ".", ".": ","}[mark] if group == ",." else group
    values = [0.0, 12.5, 999.0, 1_000.0, 1_234_567.25, 4_963_609_951.19]
    texts = [f"{v:,.2f}".replace(",", "_").replace(".", mark).replace("_", thousands) for v in values]
    assert decimal_mark(texts) == mark
    assert [parse(text, mark) for text in texts] == values


def test_a_number_of_three_decimals_is_read_as_the_others_are():
    assert decimal_mark(["1,234", "56,7", "3"]) == ","
    assert parse("1,234", ",") == 1.234
    assert decimal_mark(["1,234", "56.7", "3"]) == decimal_mark(["1,234"]) == "."
    assert np.isnan([parse(text, ".") for text in ("", "n/a", "PolicySpread", "1; 2")]).all()


def test_the_same_report_in_another_locale_is_the_same(read):
    report = gzip.decompress((COUNTERS / "h200_gpt2_prefill.ncu.csv.gz").read_bytes()).decode()
    header, units, rows = table_of(report)
    kept = [n for n in header if n in ("ID", "Kernel Name", "Grid Size", "Block Size")] + [
        n for n in header if n.startswith(("gpu__time", "dram__bytes", "smsp__sass_thread", "sm__ops_path_tensor_src"))
    ]
    swap = str.maketrans(",.", ".,")
    sizes = ("Kernel Name", "Grid Size", "Block Size")
    cells = [[row[n] if n in sizes else row[n].translate(swap) for n in kept] for row in rows[:40]]
    swapped = read(text([kept, [units[header.index(n)] for n in kept], *cells])).counters
    plain = read(report).counters.iloc[:40]
    for name in ("duration_ns", "flops", "dram_bytes", "blocks"):
        assert np.allclose(swapped[name], plain[name]), name


def test_columns_of_nvtx_in_between_and_any_order_change_nothing(read):
    metrics = {"gpu__time_duration.sum": "us", "dram__bytes_read.sum": "Mbyte", "dram__bytes_write.sum": "byte"}
    values = {"gpu__time_duration.sum": "2.5", "dram__bytes_read.sum": "1.25", "dram__bytes_write.sum": "64"}
    plain = read(raw(metrics, [values])).counters
    assert plain["dram_bytes"].tolist() == [1_250_064]
    assert plain["duration_ns"].tolist() == [2500]
    lines = list(csv.reader(raw(metrics, [values]).removeprefix(PROF).splitlines()))
    extra = (["thread Domain:Push/Pop_Range:PL_Type"], [""], ['"step":(none):a, b'])
    at = lines[0].index("Device")
    wide = [[*line[:at], *more, *line[at:]] for line, more in zip(lines, extra, strict=True)]
    assert read(PROF + text(wide)).counters.equals(plain)
    assert read(PROF + text([[line[0], *reversed(line[1:])] for line in wide])).counters.equals(plain)


@pytest.mark.parametrize(("derived", "flops"), [("_x2", 10 + 20 + 2 * 40), ("_x4", 2 * (10 + 20 + 2 * 40))])
def test_half_precision_is_packed_since_2025(read, derived, flops):
    metrics = {FP32.format(op): "inst" for op in ("hadd", "hmul", "hfma", "fadd", "fmul", "ffma")}
    metrics |= {TENSOR.format("fp16"): "", f"derived__smsp__sass_thread_inst_executed_op_hfma_pred_on{derived}": "inst"}
    values = {FP32.format(op): n for op, n in (("hadd", 10), ("hmul", 20), ("hfma", 40), ("fadd", 1), ("fmul", 2))}
    values |= {FP32.format("ffma"): 3, TENSOR.format("fp16"): 0}
    counters = read(raw(metrics, [values])).counters.iloc[0]
    assert (counters["fp16_flops"], counters["fp32_flops"], counters["flops"]) == (flops, 9, flops + 9)


def test_operations_of_tensor_cores_are_counted_once(read):
    """Newer reports hold them by type as a whole, and by instruction within the type."""
    whole, part = TENSOR.format("bf16_dst_fp32"), "sm__ops_path_tensor_op_{}_src_bf16_dst_fp32_sparsity_off.sum"
    values = {whole: "100", part.format("hmma"): "60", part.format("hgmma"): "40"} | {
        FP32.format(op): "0" for op in ("fadd", "fmul", "ffma")
    }
    counters = read(raw(dict.fromkeys(values, ""), [values])).counters.iloc[0]
    assert (counters["tensor_flops"], counters["precision"]) == (100, "bf16")
    del values[whole]
    assert read(raw(dict.fromkeys(values, ""), [values])).counters["tensor_flops"].tolist() == [100]


def test_old_reports_count_instructions_of_the_tensor_pipe(read):
    values = {"sm__inst_executed_pipe_tensor.sum": "10"} | {FP32.format(op): "1" for op in ("fadd", "fmul", "ffma")}
    counters = read(raw(dict.fromkeys(values, "inst"), [values])).counters.iloc[0]
    assert (counters["tensor_flops"], counters["flops"], counters["precision"]) == (5120, 5124, "")


def test_total_flops_are_unknown_without_the_tensor_cores(read):
    values = {FP32.format(op): "1" for op in ("fadd", "fmul", "ffma")}
    counters = read(raw(dict.fromkeys(values, "inst"), [values])).counters.iloc[0]
    assert counters["fp32_flops"] == 4
    assert np.isnan(counters["flops"])


def test_a_report_of_set_full_has_rates_a_cycle_and_a_clock(read):
    """Nsight Compute's example addConstDouble: one addition a thread, 12,288 blocks of 256."""
    rate, clock = (
        "smsp__sass_thread_inst_executed_op_{}_pred_on.sum.per_cycle_elapsed",
        "smsp__cycles_elapsed.avg.per_second",
    )
    active = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"
    values = {rate.format(op): "0" for op in ("fadd", "fmul", "ffma", "dmul", "dfma")}
    values |= {rate.format("dadd"): str(12_288 * 256 / (89_728 * 1.125))}
    units = dict.fromkeys(values, "inst/cycle") | {"gpu__time_duration.sum": "ns", clock: "Ghz", active: "%"}
    values |= {"gpu__time_duration.sum": "89728", clock: "1.125"}
    counters = read(raw(units, [{**values, active: "0"}, {**values, active: "3"}])).counters
    assert counters["fp64_flops"].tolist() == pytest.approx([12_288 * 256] * 2)
    assert counters["flops"][0] == pytest.approx(12_288 * 256) and counters["precision"][0] == "fp64"
    assert np.isnan(counters["flops"][1])


def test_a_report_is_a_trace_of_one_step_without_a_timeline():
    trace = load(COUNTERS / "h200_gpt2_prefill.ncu.csv.gz")
    device = trace.metadata.devices[0]
    assert (device.name, device.sms, device.compute_capability) == ("NVIDIA H200", 132, (9, 0))
    start, duration = trace.device["start_ns"].to_numpy(), trace.device["duration_ns"].to_numpy()
    assert start[0] == 0
    assert (start[1:] == (start + duration)[:-1]).all()
    assert trace.problems["code"].tolist() == ["no-timeline"]
    assert trace.host.empty
