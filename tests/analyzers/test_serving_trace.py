"""serve-plan --from: the twin beside the passes of a trace, and fitted to them. Traces are written here."""

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from small_decoder import SMALL

from tracekit.analyzers.attribute import batch
from tracekit.analyzers.core import InputError
from tracekit.analyzers.cost import hardware
from tracekit.analyzers.serving import Chunk, Deployment, Format, PassTimes, Question, all_engines, model_of
from tracekit.cli import main
from tracekit.serving import serve_plan

KERNELS = {
    "products": "nvjet_tst_128x64_64x8_1x2_h_bz_TNT",
    "sampling": "sm90_xmma_gemm_bf16bf16_bf16f32",
    "cache": "flash_fwd_splitkv_kernel",
    "prompts": "flash_fwd_kernel",
    "glue": "triton_poi_fused_add_rms_norm",
}
SAMPLE = Path(__file__).parents[2] / "examples" / "traces" / "serving" / "cpu_vllm.json.gz"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(SMALL))
    return tmp_path


def twin():
    engine = all_engines()["vllm"]
    return PassTimes(Deployment(model_of(SMALL, "small"), hardware.find("h100"), engine, Format("bf16")))


def recorded(path, passes, factor=1.0, host_us=500.0, wait_us=0.0, named=True):
    """Write a trace whose kernels take `factor` of the twin's time, and its host `host_us` before each pass."""
    events, now, correlation = [], 1000.0, 0

    def event(name, start, duration, category, **args):
        events.append({"ph": "X", "name": name, "ts": start, "dur": duration, "cat": category, "pid": 0, "tid": 1})
        events[-1]["args"] = args

    for decoding, keys, tokens in passes:
        parts = twin().split(decoding, keys / max(1, decoding), [Chunk(tokens, 0)] if tokens else ())
        prompt, decoded = f"sq{tokens}sk{tokens}sqsq1sqsk1", f"sq1sk{keys}sqsq1sqsk1"
        label = f"execute_context_{int(tokens > 0)}({prompt})_generation_{decoding}({decoded})"
        begin, now = now, now + host_us
        for part, name in KERNELS.items():
            if not parts.get(part):
                continue
            correlation += 1
            event("cudaLaunchKernel", now - 5, 4, "cuda_runtime", correlation=correlation)
            now += wait_us
            duration = 1e6 * factor * parts[part]
            kernel = {"device": 0, "stream": 7, "correlation": correlation}
            event(name, now, duration, "kernel", **kernel)
            events[-1] |= {"pid": 0, "tid": 7}
            now += duration
        if named:
            event(label, begin, now - begin - 1, "user_annotation")
    device = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "computeMajor": 9, "computeMinor": 0}
    path.write_text(json.dumps({"traceEvents": events, "deviceProperties": [device]}))
    return path


def asked(folder, trace, **changes):
    words = {"requests": "closed:16,200,20", "trace": str(trace)} | changes
    return Question(str(folder / "model"), "h100", **words)


PASSES = [(16, 4000, 0), (16, 4016, 0), (16, 4032, 0), (15, 3900, 900), (15, 3920, 700)]


def test_the_twin_takes_the_factors_and_the_host_of_a_trace(folder):
    plan = serve_plan(asked(folder, recorded(folder / "trace.json", PASSES, factor=1.5)))
    comparison = plan.comparison
    assert len(comparison.passes) == 5 and comparison.unknown == 0
    factors = comparison.fitted.factors
    assert factors["products"] == pytest.approx(1.5, rel=0.02)
    assert factors["cache"] == pytest.approx(1.5, rel=0.1) and factors["glue"] == pytest.approx(1.5, rel=0.02)
    assert comparison.fitted.host_s == pytest.approx(500e-6, rel=0.05)
    for each in comparison.passes:
        assert each.left_out_s == pytest.approx(each.recorded.seconds, rel=0.03)
    assert all(each.twin_s < 0.85 * each.recorded.seconds for each in comparison.passes[:3])
    slower = serve_plan(asked(folder, recorded(folder / "trace.json", PASSES, factor=1.5, host_us=3500.0)))
    more = slower.asked.found.tpot_ms.expected - plan.asked.found.tpot_ms.expected
    assert more == pytest.approx(3.0, rel=0.3)


def test_waiting_for_work_that_is_not_recorded_is_not_the_host(folder):
    plan = serve_plan(asked(folder, recorded(folder / "trace.json", PASSES[:3], wait_us=5000.0)))
    assert plan.comparison.fitted.host_s < 1e-3


def test_passes_without_names_are_usual_ones_if_they_are_alike(folder):
    alike = [(16, 16 * 190, 0)] * 4
    trace = recorded(folder / "trace.json", alike, named=False)
    content = json.loads(trace.read_text())
    steps = [e for e in content["traceEvents"] if e["name"] == KERNELS["products"]]
    marks = [
        {**steps[0], "name": f"ProfilerStep#{i}", "cat": "user_annotation", "tid": 1, "ts": s["ts"] - 100}
        for i, s in enumerate(steps)
    ]
    for mark, following in zip(marks, [*marks[1:], None], strict=True):
        mark["dur"] = (following["ts"] if following else mark["ts"] + 5000) - mark["ts"] - 1
    trace.write_text(json.dumps({**content, "traceEvents": content["traceEvents"] + marks}))
    comparison = serve_plan(asked(folder, trace)).comparison
    assert len(comparison.passes) >= 3 and all(each.batch.decoding == 16 for each in comparison.passes)
    with pytest.raises(InputError, match="says what it works on"):
        serve_plan(asked(folder, recorded(folder / "one.json", alike[:1], named=False)))


def test_a_trace_without_kernels_is_refused(folder):
    with pytest.raises(InputError, match="no kernels"):
        serve_plan(asked(folder, SAMPLE))


def test_the_command_tells_how_far_the_twin_is_off(folder):
    trace = folder / "trace.json.gz"
    plain = recorded(folder / "trace.json", PASSES, factor=2.0)
    trace.write_bytes(gzip.compress(plain.read_bytes()))
    words = ["serve-plan", "--model", str(folder / "model"), "--gpu", "h100", "--requests", "closed:16,200,20"]
    done = CliRunner().invoke(main, [*words, "--from", str(trace), "--format", "json", "-o", str(folder / "out")])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert "In the trace, the twin is" in told["answer"] and len(told["trace"]["passes"]) == 5
    assert told["trace"]["passes"][0]["error"] < -0.2 and "fitted to the trace" in told["basis"]
    assert abs(told["trace"]["passes"][0]["left_out_error"]) < 0.05
    assert "Passes of the trace" in (folder / "out" / "serve_plan.html").read_text()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("execute_context_2(128)_generation_3(3)", (2, 128, 128, 3, 0)),
        ("execute_23_context_1(sq22sk60sqsq484sqsk1320)_generation_1(sq1sk91sqsq1sqsk91)", (1, 22, 60, 1, 91)),
        ("step[EXTEND bs=2 toks=128]", (2, 128, 128, 0, 0)),
        ("step[MIXED bs=3 c=1 g=2 c_sq=22 c_sk=60 g_sq=2 g_sk=91 forward_id=5]", (1, 22, 60, 2, 91)),
        ("step[DECODE bs=2]", (0, 0, 0, 2, 0)),
    ],
)
def test_ranges_say_what_a_pass_works_on(name, expected):
    assert batch(name) == expected


@pytest.mark.parametrize(
    "name", ["execute_new_2_cached_0", "step[MIXED bs=2]", "step[VERIFY bs=3]", "step[EXTEND bs=2]", "x"]
)
def test_ranges_that_do_not_say_it_give_none(name):
    assert batch(name) is None
    assert batch("execute_context_1()_generation_0()") == (1, 0, 0, 0, 0)
