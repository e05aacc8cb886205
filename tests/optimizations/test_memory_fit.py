"""Advice for a run that does not fit its GPU's memory."""

from types import SimpleNamespace

import pandas as pd
import pytest
from msgspec.structs import replace
from op_lists import base

from tracekit.advise import Search, advise, fit_problems, memory_fit
from tracekit.advise.optimizations.batching import Batching
from tracekit.analyzers.attribute import ACCUMULATED, gradient_bytes
from tracekit.analyzers.cost import hardware
from tracekit.analyzers.predict import moved
from tracekit.analyzers.predict.batch_size import batch_by_shapes
from tracekit.analyzers.predict.memory import least_memory
from tracekit.analyzers.predict.running import Running
from tracekit.analyzers.results import Memory
from tracekit.reports.answer.headlines import of_fit

GB = 10**9


def test_a_run_that_fits_has_no_remedies() -> None:
    fit, steps = memory_fit(Search(base("a100", weight_bytes=20 * GB, peak_memory_bytes=26 * GB)))
    assert (fit, steps, fit_problems(fit)) == (None, (), [])


def test_a_smaller_batch_makes_activations_fit() -> None:
    fit, steps = memory_fit(Search(base("a100", batch_size=16, weight_bytes=20 * GB, peak_memory_bytes=170 * GB)))
    assert fit is not None and fit.largest_batch == 6
    smaller = next(remedy for remedy in fit.remedies if remedy.name == "batching:6")
    assert smaller.fits and smaller.peak_bytes <= 80 * GB and smaller.free_bytes == 80 * GB - smaller.peak_bytes
    assert steps
    assert of_fit(fit).startswith("does not fit: 170.0 of 80 GB; batch 6 is the largest")
    (problem,) = fit_problems(fit)
    assert problem.row()[:2] == ("does-not-fit", "error")


def test_what_makes_it_fit_comes_first_in_advice_and_plan() -> None:
    advice = advise(base("a100", batch_size=16, weight_bytes=20 * GB, peak_memory_bytes=170 * GB))
    assert advice.memory_fit is not None
    names = {remedy.name.split(":")[0] for remedy in advice.memory_fit.fitting}
    assert names
    recommended = [each.id for each in advice.recommendations]
    assert recommended and advice.plan[0].name.split(":")[0] == recommended[0]
    assert advice.plan[-1].memory_bytes is not None and advice.plan[-1].memory_bytes <= 80 * GB
    assert {each.reason[0].kind for each in advice.recommendations} <= {"makes-it-fit", "helps-to-fit"}


def test_weights_that_no_gpu_holds_leave_no_batch() -> None:
    fit, _ = memory_fit(Search(base("t4", weight_bytes=900 * GB, peak_memory_bytes=950 * GB)))
    assert fit is not None and fit.largest_batch == 0
    assert of_fit(fit).endswith("no batch fits; nothing that tracekit knows makes it fit one GPU")
    assert advise(base("t4", weight_bytes=900 * GB, peak_memory_bytes=950 * GB)).recommendations == ()


@pytest.mark.parametrize(
    ("calls", "batch"),
    [
        ([("aten::conv2d", "[[32,3,224,224],[64,3,7,7]]")] * 3, 32),
        ([("aten::embedding", "[[50257,768],[4,128]]"), ("aten::embedding", "[[1024,768],[1,128]]")], 4),
        ([("aten::embedding", "[[30527,768],[8,256]]"), ("aten::embedding", "[[32,12],[256,256]]")], 8),
        ([("aten::scaled_dot_product_attention", "[[8,12,64,64],[8,12,64,64]]"), ("aten::conv2d", "[[1,3,9,9]]")], 0),
        ([("aten::mm", "[[8,12],[12,8]]")], 0),
        ([("aten::conv2d", "")], 0),
        ([("aten::conv2d", "[" * 100_000)], 0),
        ([("aten::clone", "[[4,1],[]]"), ("aten::copy_", "[[4,1],[4,1],[]]")], 4),
        ([("aten::clone", "[[4,1],[]]"), ("aten::copy_", "[[6,1],[6,1],[]]")], 0),
        ([("aten::clone", "[[4]]"), ("aten::copy_", "[[4,1,8]]")], 0),
        ([("cudaGraphLaunch", ""), ("aten::copy_", "[[4],[4],[]]")], 4),
        ([("cudaGraphLaunch", ""), ("aten::copy_", "[[2,3,8,8],[]]", '["float"]')], 2),
        (
            [
                ("cudaGraphLaunch", ""),
                ("aten::copy_", "[[2,3,8,8],[]]", '["float"]'),
                ("aten::copy_", "[[3,8],[]]", '["float"]'),
            ],
            0,
        ),
        ([("aten::copy_", "[[2,3,8,8],[]]", '["float"]')], 0),
        ([("cudaGraphLaunch", ""), ("aten::normal_", "[[2,3,8,8],[],[]]", '["float"]')], 2),
        ([("cudaGraphLaunch", ""), ("aten::copy_", "[[4],[4],[]]"), ("aten::copy_", "[[1],[1],[]]")], 0),
        ([("aten::linear", "[[32,64],[8,64],[8]]"), ("aten::relu", "[[32,8]]")], 32),
        ([("aten::linear", "[[32,64],[8,64],[8]]"), ("aten::relu", "[[16,8]]")], 0),
        ([("aten::relu", "[[64]]")], 0),
        ([("aten::relu", "[[9,8]]"), ("aten::embedding", "[[50257,768],[4,128]]")], 4),
        ([], 0),
    ],
)
def test_the_batch_is_read_from_shapes(calls: list[tuple[str, ...]], batch: int) -> None:
    host = pd.DataFrame([(*call, '["long int"]')[:3] for call in calls], columns=["name", "shapes", "dtypes"])
    assert batch_by_shapes(host.assign(category="op")) == batch


def test_the_batch_of_a_graphed_decode_is_that_of_its_logits() -> None:
    calls = [("aten::topk", "[[2,32000],[],[]]", '["float","Scalar"]'), ("aten::argmax", "[[2,40]]", '["float"]')]
    host = pd.DataFrame(calls, columns=["name", "shapes", "dtypes"]).assign(category="op")
    assert batch_by_shapes(host) == 2
    assert batch_by_shapes(host.assign(dtypes='["long int"]')) == 0


@pytest.mark.parametrize(
    ("names", "batch"),
    [
        (["execute_context_0(0)_generation_64(64)"] * 3 + ["execute_context_1(512)_generation_63(63)"], 64),
        (["execute_context_2(900)_generation_0(0)"], 2),
        (["execute_new_1_cached_7"], 8),
        (["step[DECODE bs=16]"], 16),
        (["execute_context_0(0)_generation_0(0)", "step_3"], 0),
    ],
)
def test_the_batches_of_a_serving_engine_name_their_requests(names: list[str], batch: int):
    columns = {"category": "range", "name": pd.Categorical(names), "shapes": "", "dtypes": ""}
    assert batch_by_shapes(pd.DataFrame(columns)) == batch


def test_batching_takes_the_batch_of_the_shapes() -> None:
    run = base("a100", batch_size=0)
    assert Batching().objection(run) is not None
    known = replace(run, batch_by_shapes=4)
    assert Batching().objection(known) is None
    assert Batching().applied(known, "expected").batch_size == 32


def test_an_unknown_batch_of_a_graph_counts_as_one() -> None:
    run = replace(base("a100", batch_size=0), running=Running(graph_launches=1, graphed=1.0))
    assert Batching().objection(run) is None
    assert Batching().work(run) == Batching(8).work(run) == 8
    assert "if it is one now" in Batching().how_to(run)


def test_inference_holds_its_largest_result_beside_its_weights() -> None:
    run, trace = base("h100", layers=2), SimpleNamespace(metadata=SimpleNamespace(peak_memory_bytes=0))
    least = least_memory(trace, run.ops, run.gpu, training=False)
    assert least is not None and least.weights > 0
    assert least.activations == max(cost.write_bytes for cost in run.ops.cost) > 0


def test_a_trace_of_others_needs_at_least_what_is_known_on_another_gpu() -> None:
    here = base("h100", layers=48)
    known = replace(here, source=replace(here.source, capture=None), least_memory=Memory(weights=18 * GB))
    assert known.memory is None
    fit, _ = memory_fit(Search(moved(known, hardware.find("t4"))))
    assert fit is not None and fit.at_least and fit.gpu == "NVIDIA T4"
    assert of_fit(fit, fit.gpu).startswith("does not fit an NVIDIA T4: at least 18.")
    assert "it may fit with" in of_fit(fit)
    assert "at least" in fit_problems(fit)[0].row()[3]
    advice = advise(moved(known, hardware.find("t4")))
    assert advice.recommendations[0].id == advice.plan[0].name.split(":")[0] == fit.fitting[0].name.split(":")[0]


def test_gradients_tell_the_bytes_of_parameters() -> None:
    rows = [(ACCUMULATED, "[[8,4]]", '["float"]'), (ACCUMULATED, "[[4]]", '["c10::BFloat16"]')] * 2
    host = pd.DataFrame([*rows, ("aten::mm", "[[99]]", '["float"]')], columns=["name", "shapes", "dtypes"])
    assert gradient_bytes(host) == 32 * 4 + 4 * 2
    assert gradient_bytes(host.assign(dtypes="")) == (32 + 4) * 2
    assert gradient_bytes(host.iloc[-1:]) == 0
