import json

import jsonschema
import numpy as np
import pandas as pd
import pytest
from msgspec.structs import replace
from ncu_csv import COUNTERS, raw

from tracekit.analyzers import analyze
from tracekit.analyzers.core import InputError
from tracekit.analyzers.trace import load, match
from tracekit.analyzers.trace.ncu.metrics import base, full
from tracekit.answer import analyze as analyze_files
from tracekit.reports.answer.export import to_dict
from tracekit.reports.words import schema

TRACES = COUNTERS.parent / "traces"
PREFILL = (TRACES / "h200_gpt2_prefill.json.gz", COUNTERS / "h200_gpt2_prefill.ncu.csv.gz")
DECODE = (TRACES / "h200_gpt2_decode.json.gz", COUNTERS / "h200_gpt2_decode.ncu.csv.gz")


@pytest.fixture(scope="module")
def prefill():
    return analyze_files(PREFILL[0], counters=PREFILL[1])


@pytest.mark.parametrize(
    ("of_trace", "of_report"),
    [
        (
            "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, int, long, bool)",
            "void at::vectorized_gather_kernel<16, long>(char *, char *, T2 *, int, long, bool)",
        ),
        (
            "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float, false>(int, float*)",
            "void at::<unnamed>::vectorized_layer_norm_kernel<float, float, 0>(int, T2, const T1 *)",
        ),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::tanh_kernel_cuda(at::TensorIteratorBase&)::"
            "{lambda()#2}::operator()() const::{lambda(float)#1}, std::array<char*, 2ul> >(int)",
            "void at::vectorized_elementwise_kernel<4, at::tanh_kernel_cuda(at::TensorIteratorBase &)::"
            "[lambda() (instance 2)]::operator ()() const::[lambda(float) (instance 1)], std::array<char *, 2>>(T3)",
        ),
        (
            "fmha_cutlassF_f32(PyTorchMemEffAttention::AttentionKernel<float, cutlass::arch::Sm80, true>::Params)",
            "fmha_cutlassF_f32(PyTorchMemEffAttention::AttentionKernel<float, arch::Sm80, 1>::Params)",
        ),
    ],
)
def test_names_of_both_tools_have_one_form(of_trace, of_report):
    assert full(of_trace) == full(of_report)


def test_names_that_differ_stay_apart():
    assert full("f<4, a(int)::{lambda()#1}>(int)") != full("f<4, a(int)::{lambda()#2}>(int)")
    assert full("f<4, float>(int)") != full("f<2, float>(int)") != full("f<2, double>(int)")
    assert full("a::f(int)") != full("a::g(int)")


def test_base_names_are_those_of_the_function():
    assert base("void at::native::f<4, float>(int)") == base("f") == base("_ZN2at6native1fILi4EfEEvi") == "f"
    assert base("_Z6vecAddPKf") == "vecAdd"
    assert base("_Z99999999999999999999x") == "x"


def kernels(*rows):
    frame = pd.DataFrame(rows, columns=["name", "blocks", "threads_per_block", "device"])
    return frame.assign(category="kernel")


def test_among_like_kernels_the_kth_is_the_kth_and_begins_again():
    measured = kernels(("f<4>", 8, 128, 0), ("g", 8, 128, 0), ("f<4>", 8, 128, 0), ("f<4>", 9, 128, 0))
    launched = kernels(
        *[("void n::f<4u>(int)", 8, 128, 0)] * 3, ("f<4>", 9, 128, 0), ("f<4>", 9, 64, 0), ("h", 8, 128, 0)
    )
    assert match(launched, measured).tolist() == [0, 2, 0, 3, -1, -1]


def test_each_device_begins_at_the_first():
    measured = kernels(("f", 8, 128, 0), ("f", 8, 128, 0))
    launched = kernels(("f", 8, 128, 0), ("f", 8, 128, 1), ("f", 8, 128, 0), ("f", 8, 128, 1))
    assert match(launched, measured).tolist() == [0, 0, 1, 1]


def test_short_names_match_what_whole_names_leave():
    measured = kernels(("f<4>", 8, 128, 0), ("f", 8, 128, 0))
    assert match(kernels(("f<2>", 8, 128, 0), ("f<4>", 8, 128, 0)), measured).tolist() == [1, 0]


def test_copies_match_nothing():
    assert match(kernels(("f", 8, 128, 0)).assign(category="memcpy"), kernels(("f", 8, 128, 0))).tolist() == [-1]


def test_every_kernel_of_the_same_run_is_measured(prefill):
    counters = load(PREFILL[1]).counters
    of_kernels = prefill.work[prefill.work["category"] == "kernel"]
    assert prefill.source.counters is not None
    assert (prefill.source.counters.matched, prefill.source.counters.kernels) == (235, 235)
    assert prefill.source.counters.unmatched == 0
    assert of_kernels["counters"].tolist() == list(range(235))
    assert of_kernels["flops"].tolist() == counters["flops"].tolist()
    assert of_kernels["bytes"].tolist() == counters["dram_bytes"].tolist()


def test_steps_each_begin_at_the_first_launch():
    analysis = analyze_files(DECODE[0], counters=DECODE[1])
    of_kernels = analysis.work[analysis.work["category"] == "kernel"]
    assert of_kernels["counters"].tolist() == list(range(235)) * 3


def test_tables_hold_the_measured_numbers(prefill):
    counters = load(PREFILL[1]).counters
    assert prefill.kernels["flops"].sum() == counters["flops"].sum()
    copied = prefill.work.loc[prefill.work["category"] != "kernel", "bytes"].sum()
    assert prefill.layers["bytes"].iloc[0] == pytest.approx(counters["dram_bytes"].sum() + copied)
    kernel = prefill.kernels[prefill.kernels["name"].str.startswith("fmha_cutlassF")].iloc[0]
    assert kernel["intensity"] == pytest.approx(kernel["flops"] / kernel["bytes"])
    tf32_s = kernel["flops"] / 494.5e12
    assert kernel["roof_fraction"] == pytest.approx(tf32_s / (kernel["busy_ns"] * 1e-9), rel=1e-6)


def test_measured_against_counted_by_family(prefill):
    compared = prefill.counters_comparison.set_index("family")
    counted = analyze_files(PREFILL[0]).work
    gemm = (counted["family"] == "gemm").to_numpy() & (prefill.work["counters"] >= 0).to_numpy()
    assert compared["kernels"]["gemm"] == gemm.sum() == 49
    assert compared["counted_bytes"]["gemm"] == pytest.approx(counted["bytes"][gemm].sum())
    assert compared["measured_bytes"]["gemm"] == prefill.work["bytes"][gemm].sum()
    ratios = prefill.work["bytes"][gemm] / counted["bytes"][gemm]
    assert compared["bytes_ratio"]["gemm"] == pytest.approx(np.median(ratios))
    assert compared["bytes_ratio_p10"]["gemm"] == pytest.approx(np.quantile(ratios, 0.1))
    assert compared["flops_ratio"]["gemm"] == pytest.approx(1, abs=0.003)
    assert compared["share"].is_monotonic_decreasing


def test_problems_say_what_is_measured_and_what_disagrees(prefill):
    problems = prefill.problems.set_index("code")
    assert problems["count"]["measured-counters"] == 235
    assert "of 235 kernels, 99.8% of the busy time" in problems["message"]["measured-counters"]
    assert "FLOPs of attention × 3.5" in problems["message"]["counters-disagree"]
    assert "counters-unmatched" not in problems.index


def test_a_model_of_two_layers_matches_most_of_one_of_twelve(shared):
    report = shared / "ncu" / "h200_gpt2-2layer_fp32_raw.csv.gz"
    analysis = analyze_files(PREFILL[0], counters=report)
    measured = analyze_files(PREFILL[0], counters=PREFILL[1])
    source = analysis.source.counters
    assert (source.launches, source.unmatched, source.matched, source.kernels) == (49, 8, 211, 235)
    both = (analysis.work["counters"] >= 0) & (measured.work["flops"] > 1e6)
    assert np.allclose(analysis.work["flops"][both], measured.work["flops"][both], rtol=0.003)
    problems = analysis.problems.set_index("code")["count"]
    assert (problems["measured-counters"], problems["counters-unmatched"]) == (211, 8)
    for_others = analysis.work["counters"] < 0
    counted = analyze_files(PREFILL[0]).work
    assert analysis.work["bytes"][for_others].equals(counted["bytes"][for_others])


def test_nothing_in_common_changes_nothing(tmp_path):
    report = tmp_path / "other.csv"
    report.write_text(raw({"gpu__time_duration.sum": "ns", "dram__bytes.sum": "byte"}, [{"dram__bytes.sum": "1"}]))
    analysis, plain = analyze_files(PREFILL[0], counters=report), analyze_files(PREFILL[0])
    assert analysis.work.equals(plain.work)
    assert analysis.counters_comparison.empty
    assert "all FLOPs and bytes are counted" in analysis.problems.set_index("code")["message"]["counters-unmatched"]


def test_what_was_not_measured_stays_counted():
    trace = load(PREFILL[0])
    counters = load(PREFILL[1]).counters
    plain = analyze(trace)
    analysis = analyze(replace(trace, counters=counters.assign(dram_bytes=np.nan, precision="")))
    assert analysis.work["bytes"].equals(plain.work["bytes"])
    assert analysis.work["precision"].equals(plain.work["precision"])
    assert not analysis.work["flops"].equals(plain.work["flops"])


def test_json_keeps_its_schema(prefill):
    for analysis in (prefill, analyze_files(PREFILL[1]), analyze_files(PREFILL[0])):
        jsonschema.validate(json.loads(json.dumps(to_dict(analysis))), schema("analysis"))
    exported = to_dict(prefill)
    assert exported["source"]["counters"] == {
        "launches": 235, "unmatched": 0, "matched": 235, "kernels": 235, "provenance": "measured",
        "busy_share": pytest.approx(0.998181, abs=1e-6),
    }  # fmt: skip
    assert [row["family"] for row in exported["counters_comparison"]][:2] == ["gemm", "attention"]
    assert to_dict(analyze_files(PREFILL[0]))["source"]["counters"] is None


def test_page_and_terminal_say_where_the_numbers_are_from(prefill):
    from tracekit.reports.answer import render, terminal_document
    from tracekit.reports.document import render as rendered

    plain = analyze_files(PREFILL[0])
    assert "Measured by Nsight Compute over counted" in rendered(terminal_document(prefill), "text", width=140)
    assert "Nsight Compute" not in rendered(terminal_document(plain), "text", width=140)
    page = render(prefill)
    assert "by Nsight Compute for 235 of 235 kernels" in page
    assert "Measured counters" in page
    assert "by Nsight Compute for" not in render(plain)


def test_a_report_alone_is_analyzed():
    analysis = analyze_files(PREFILL[1])
    counters = load(PREFILL[1]).counters
    assert analysis.source.gpu is not None
    assert (analysis.source.gpu.id, analysis.source.format) == ("h200", "ncu")
    assert analysis.timeline.busy_ns == analysis.timeline.wall_ns == counters["duration_ns"].sum()
    assert analysis.bound.launch == 0
    assert analysis.kernels["flops"].sum() == counters["flops"].sum()
    assert analysis.work["counters"].tolist() == list(range(235))
    assert set(analysis.problems["code"]) == {"no-timeline", "no-layers", "measured-counters"}
    head = analysis.kernels.iloc[0]
    longest = counters.groupby("name", observed=True)["duration_ns"].sum()
    assert head["busy_ns"] == longest.max()


def test_a_trace_is_no_report():
    with pytest.raises(InputError, match="contains no counters"):
        analyze_files(PREFILL[0], counters=PREFILL[0])
