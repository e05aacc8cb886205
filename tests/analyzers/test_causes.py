"""What the host did while devices were idle: each cause, its time, and its name."""

import pandas as pd
import pytest
from handmade import Handmade

import tracekit
from tracekit.analyzers import analyze
from tracekit.analyzers.attribute.host_kinds import function_of


def causes(trace: Handmade) -> pd.DataFrame:
    """HOST_CAUSES of the trace, by cause."""
    analysis = analyze(trace.trace())
    assert analysis.gaps["duration_ns"].sum() == analysis.timeline.steps["idle_ns"].sum()
    assert analysis.idle_causes["idle_ns"].sum() == pytest.approx(analysis.gaps["duration_ns"].sum(), abs=5)
    return analysis.host_causes.set_index("cause")


def between(*rows: tuple[str, str, float, float]) -> Handmade:
    """Two kernels, the second launched 10 ms after the first, and host rows."""
    trace = Handmade().launched("a", 0, 5, 10).launched("b", 10_000, 10_005, 10)
    for category, name, start, duration in rows:
        trace.host(category, name, start, duration)
    return trace


LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


@pytest.mark.parametrize(
    ("category", "name", "cause"),
    [
        ("range", LOADER, "data-loading"),
        ("range", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "data-loading"),
        ("python", "torch/utils/data/dataloader.py(703): __next__", "data-loading"),
        ("range", "preprocess", "preprocessing"),
        ("op", "aten::upsample_bilinear2d", "preprocessing"),
        ("runtime", "cudaStreamSynchronize", "sync"),
        ("runtime", "hipMemcpyWithStream", "sync"),
        ("runtime", "cudaMalloc", "allocation"),
        ("runtime", "cudaFree", "allocation"),
        ("runtime", "cudaHostAlloc", "allocation"),
        ("runtime", "cudaFuncGetAttributes", "setup"),
        ("runtime", "cudaGraphInstantiate", "setup"),
        ("python", "Python GC", "garbage-collection"),
        ("op", "_compile.compile_inner (dynamo_timed)", "compilation"),
        ("op", "c10d::allreduce_", "communication"),
    ],
)
def test_each_cause_has_its_time_and_its_name(category: str, name: str, cause: str):
    row = causes(between((category, name, 100, 9_000))).loc[cause]
    assert row["idle_ns"] == 9_000_000
    assert row["name"] == (name if category != "python" or "(" not in name else "torch.utils.data.dataloader.__next__")


def test_workers_that_each_epoch_starts_are_data_loading():
    frames = (
        "slow.py(66): step",
        "torch/utils/data/dataloader.py(487): __iter__",
        "multiprocessing/process.py(110): start",
    )
    rows = causes(
        between(*[("python", frame, 100 + 10 * depth, 9_000 - 20 * depth) for depth, frame in enumerate(frames)])
    )
    assert rows.loc["data-loading", "idle_ns"].sum() >= 8_900_000


@pytest.mark.parametrize(("call", "cause"), [("cudaGraphLaunch", "dispatch"), ("cudaLaunchKernelExC", "setup")])
def test_the_launch_of_a_graph_takes_long_without_loading_anything(call: str, cause: str):
    assert causes(between(("runtime", call, 100, 9_000))).loc[cause, "idle_ns"] >= 9_000_000


@pytest.mark.parametrize(
    "name", ["cudagraphify.get_container (dynamo_timed)", "torch/_dynamo/metrics_context.py(238): finish"]
)
def test_what_torch_compile_does_to_record_graphs_is_recording(name: str):
    category = "python" if ".py" in name else "op"
    assert causes(between((category, name, 100, 9_000))).loc["recording", "idle_ns"] == 9_000_000


def test_recording_is_the_call_of_compiled_code_around_a_capture():
    trace = between(
        ("op", "Torch-Compiled Region: 0/0", 100, 9_000),
        ("runtime", "cudaStreamBeginCapture", 1_000, 10),
        ("op", "aten::addmm", 1_200, 800),
        ("runtime", "cudaStreamEndCapture", 3_000, 10),
        ("runtime", "cudaGraphInstantiate", 3_010, 500),
        ("runtime", "cudaMalloc", 4_000, 1_000),
    )
    rows = causes(trace)
    assert rows.loc["recording", "idle_ns"].sum() == 8_000_000
    assert rows.loc["allocation", "idle_ns"].sum() == 1_000_000


def test_a_capture_by_hand_is_recording():
    rows = causes(
        between(("runtime", "cudaStreamBeginCapture", 1_000, 10), ("runtime", "cudaStreamEndCapture", 8_000, 9))
    )
    assert rows.loc["recording", "idle_ns"].sum() == pytest.approx(7_000_000, rel=0.01)


def test_a_call_that_ends_just_after_its_caller_counts_once():
    """A profiler's times of returns differ by less than a microsecond."""
    frames = (
        ("python", "train.py(9): main", 20, 9_900),
        ("python", "torch/utils/_contextlib.py(45): generator_context", 100, 9_000),
        ("python", "train.py(20): prepare", 101, 8_999.4),
    )
    rows = causes(between(*frames)).loc[["preprocessing"]].set_index("name")
    assert rows.loc["train.prepare", "idle_ns"] == pytest.approx(8_999_400, rel=1e-3)


def test_an_op_that_works_long_before_it_launches_plans():
    row = causes(between(("op", "aten::_cudnn_attention_forward", 100, 9_950))).loc["planning"]
    assert (row["idle_ns"], row["name"]) == (9_900_000, "aten::_cudnn_attention_forward")


def test_a_function_is_named_with_who_called_it():
    frames = (
        ("python", "train.py(9): main", 20, 9_900),
        ("python", "transformers/models/owlv2/image_processing_owlv2.py(301): resize", 100, 9_000),
        ("python", "scipy/ndimage/_interpolation.py(739): zoom", 200, 8_800),
        ("python", "<built-in function zoom_shift>", 300, 8_000),
    )
    trace = between(*frames)
    trace.host("runtime", "cudaLaunchKernel", 9_500, 1, correlation=9).device("c", 9_502, 5, correlation=9)
    rows = causes(trace).loc[["preprocessing"]].set_index("name")
    zoom = rows.loc["scipy.ndimage.zoom"]
    assert zoom["idle_ns"] == 8_800_000
    assert zoom["location"] == "scipy/ndimage/_interpolation.py:739"
    assert zoom["caller"].startswith("transformers.models.owlv2.image_processing_owlv2.resize (")


def test_an_op_on_the_host_is_named_and_the_frame_around_it_calls_it():
    frame = ("python", "/tmp/ipykernel_1/162.py(18): <cell line: 0>", 50, 9_900)
    made = between(frame, ("op", "aten::randn", 100, 9_000), ("op", "aten::normal_", 110, 8_980))
    row = causes(made).loc["preprocessing"].set_index("name").loc["aten::randn"]
    assert (row["idle_ns"], row["caller"]) == (9_000_000, "162.<cell line: 0>")
    assert row["location"] == "/tmp/ipykernel_1/162.py:18"


MARKS = ["ProfilerStep#2", "step: 2", "phase: decode", "step_2", "execute_new_1_cached_2", "step[DECODE bs=4]"]


@pytest.mark.parametrize(("around", "name"), [*((mark, "") for mark in MARKS), ("copy a batch", "copy a batch")])
def test_the_mark_of_a_step_names_nothing(around: str, name: str):
    assert causes(between(("range", around, 0, 10_020))).loc["unexplained", "name"] == name


def test_an_image_processor_inside_a_loader_is_preprocessing():
    frame = "transformers/image_processing_utils.py(40): __call__"
    rows = causes(between(("range", LOADER, 100, 9_000), ("python", frame, 200, 8_000)))
    assert rows.loc["preprocessing", "idle_ns"] == 8_000_000
    assert rows.loc["data-loading", "idle_ns"] == 1_000_000


def test_the_transform_of_a_dataset_is_data_loading_and_named():
    frame = "/home/me/train.py(12): __getitem__"
    rows = causes(between(("range", LOADER, 100, 9_000), ("python", frame, 200, 8_000)))
    named = rows.loc["data-loading"].set_index("name")
    assert named["idle_ns"].to_dict() == {"train.__getitem__": 8_000_000, LOADER: 1_000_000}
    assert named.loc["train.__getitem__", "location"] == "/home/me/train.py:12"


def test_python_inside_a_model_is_no_preprocessing():
    module = ("module", "nn.Module: Model_0", 20, 9_970)
    rows = causes(between(module, ("python", "model.py(3): table", 100, 9_000)))
    assert rows.loc["python"].set_index("name").loc["model.table", "idle_ns"] == 9_000_000


def test_a_wait_before_preprocessing_does_not_take_its_time():
    trace = between(("runtime", "cudaStreamSynchronize", 6, 10), ("range", "decode video", 100, 9_000))
    rows = causes(trace)
    assert rows.loc["preprocessing", "idle_ns"] == 9_000_000
    assert rows.loc["sync", "idle_ns"] < 1_000_000 + 1


def test_dispatching_after_a_wait_is_the_waits():
    trace = Handmade().launched("a", 0, 5, 10).launched("b", 300, 305, 10)
    trace.host("op", "aten::item", 4, 14).host("runtime", "cudaStreamSynchronize", 6, 11)
    row = causes(trace).loc["sync"]
    assert row["name"] == "aten::item"
    assert row["idle_ns"] == 285_000


def test_ops_without_launches_that_follow_each_other_are_dispatching():
    views = [("op", "aten::view", 20 + 20 * i, 10) for i in range(490)]
    rows = causes(between(*views))
    assert rows["idle_ns"].idxmax() == "dispatch"
    assert set(rows.index) == {"dispatch", "launch"}


def test_ten_milliseconds_without_an_event_are_unexplained():
    assert causes(between()).loc["unexplained", "idle_ns"] == 9_985_000


def test_other_threads_explain_nothing():
    trace = between()
    trace.host("python", "tqdm/_monitor.py(60): run", 0, 10_000, thread=5)
    assert set(causes(trace).index) == {"unexplained", "launch"}


def test_a_modules_range_is_no_preprocessing():
    rows = causes(between(("range", "module: drop (Dropout)", 100, 400)))
    assert "preprocessing" not in rows.index


def test_names_of_functions():
    assert function_of("/x/site-packages/scipy/ndimage/_a.py(7): zoom").name == "scipy.ndimage.zoom"
    assert function_of("torch/nn/modules/linear.py(114): forward").framework
    assert function_of("<built-in function zoom_shift>").name == "zoom_shift"
    assert function_of("<built-in method run_backward of torch._C._EngineBase object>").framework
    assert function_of("x" * 100_000).location == ""


def test_a_hostile_name_takes_no_time():
    names = ["data" * 20_000, "a.b" * 20_000, "x_" * 40_000, "1(" * 40_000]
    rows = [("range", name, 100 + 2_000 * i, 1_500) for i, name in enumerate(names)]
    assert causes(between(*rows)).loc[["preprocessing"], "idle_ns"].sum() == 6_000_000


def test_the_preprocessing_of_a_detector_is_named(shared):
    analysis = tracekit.analyze(shared / "advice" / "h100_owlv2.json.gz")
    first = analysis.idle_causes.iloc[0]
    assert first["cause"] == "preprocessing"
    assert first["idle_ns"] > 600e6
    named = analysis.host_causes.groupby("name")["idle_ns"].sum()
    assert named.idxmax() == "scipy.ndimage.zoom"
    row = analysis.host_causes.set_index("name").loc[["scipy.ndimage.zoom"]].iloc[0]
    assert "image_processing_owlv2.resize" in row["caller"]


def test_a_loader_without_workers_is_data_loading(shared):
    analysis = tracekit.analyze(shared / "advice" / "h100_resnet-dataloader.json.gz")
    assert analysis.idle_causes["cause"].iloc[0] == "data-loading"
    later = analysis.host_causes[analysis.host_causes["step"] > 0]
    by_cause = later.groupby("cause")["idle_ns"].sum()
    assert by_cause["data-loading"] > 0.9 * by_cause.sum()


HEALTHY = (
    *("a100_resnet-ddp_nccl", "h100_bert-small", "h100_qwen1.5-0.5b", "h200_gpt2_fp32-eager_prefill"),
    *("h200_llama-1b_bf16_decode", "mi300_bert-small", "mi300_torch-compile"),
)


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_runs_neither_load_nor_preprocess(shared, name: str):
    analysis = tracekit.analyze(shared / "traces" / f"{name}.json.gz")
    shares = analysis.idle_causes.set_index("cause")["share"]
    assert shares.reindex(["data-loading", "preprocessing", "compilation"]).fillna(0).sum() < 0.01


def loop(ops: int, computes: str) -> Handmade:
    """Ops on the host for 8 ms: one of 40 us and one that makes a view, in turn, and Python between them."""
    rows = [("op", (computes, "aten::select")[at % 2], 500 + at * 8_000 / ops, 40 - 30 * (at % 2)) for at in range(ops)]
    return between(*rows)


def test_short_ops_on_the_host_without_a_launch_are_a_loop_with_all_between_them():
    assert causes(loop(100, "aten::lerp"))["idle_ns"].groupby("cause").sum()["preprocessing"] > 7_800_000
    assert "preprocessing" not in causes(loop(100, "aten::view")).index
    assert "preprocessing" not in causes(loop(6, "aten::lerp")).index
