"""`fuse TRACE --execution-trace`: the plan of another profiler's trace by its tensors, and its kernels."""

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tracekit.analyzers.core import InputError
from tracekit.analyzers.cost import hardware
from tracekit.analyzers.fuse import plan
from tracekit.cli import main
from tracekit.fuse import executed_plan

SAMPLES = Path(__file__).parents[2] / "examples" / "execution_traces"
H100 = hardware.find("h100")


def pair(name, where="cpu"):
    return SAMPLES / f"{where}_llama_{name}.trace.json.gz", SAMPLES / f"{where}_llama_{name}.et.json.gz"


def with_kernels(path, folder):
    """Return the trace as if each op of the CPU had launched a kernel of 2 us."""
    document = json.loads(gzip.decompress(path.read_bytes()))
    ops = [event for event in document["traceEvents"] if event.get("cat") == "cpu_op"]
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "dur": 2.0}
    for event in ops:
        args = {"device": 0, "stream": 7, "External id": event["args"]["External id"]}
        document["traceEvents"].append({**kernel, "ts": event["ts"], "args": args})
    document["deviceProperties"] = [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "numSms": 132}]
    changed = folder / "trace.json"
    changed.write_text(json.dumps(document))
    return changed


def fuse(*arguments):
    return CliRunner().invoke(main, ["fuse", *map(str, arguments)])


@pytest.mark.parametrize("workload", ["prefill", "train"])
def test_the_plan_is_that_of_a_capture_of_our_own(tmp_path, workload):
    pytest.importorskip("transformers")
    from tracekit.capture import complete, graph_of, steps
    from tracekit.run import Settings

    sizes = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1000}
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128}
    (tmp_path / "config.json").write_text(json.dumps({**config, **sizes, "bos_token_id": 0, "eos_token_id": 0}))
    asked = {"batch_size": 2, "seq_len": 16, "dtype": "fp32", "workload": workload, "gpu": "h100", "device": "model"}
    own = plan(graph_of(steps.run(complete(Settings(model=str(tmp_path), **asked)), H100).recording), H100)
    found = executed_plan(*pair(workload), H100)
    assert found.trains == (workload == "train")
    assert [row_of(row) for row in found.rows if row.template] == [row_of(row) for row in own if row.template]


def row_of(row):
    sizes = {name: value for name, value in row.sizes.items() if row.template != "cross_entropy" or name != "rows"}
    return row.template, row.groups, row.ops, sizes


def test_kernel_times_of_the_trace_are_those_before(tmp_path):
    trace, beside = pair("prefill")
    assert not executed_plan(trace, beside, H100).measured
    timed = executed_plan(with_kernels(trace, tmp_path), beside, H100)
    gated = next(row for row in timed.rows if row.template == "gated_activation")
    assert timed.measured
    assert gated.before_ns == 2 * 2 * 2000  # silu and mul of two layers
    shown = fuse(tmp_path / "trace.json", "--execution-trace", beside)
    assert "H100" in shown.output, "the GPU is that of the trace"
    assert "times before are measured" in shown.output


def test_kernels_are_written_and_say_what_the_trace_does_not_tell(tmp_path):
    pytest.importorskip("triton")
    from tracekit.fuse.writing import load

    trace, beside = pair("prefill")
    told = fuse(trace, "--execution-trace", beside, "--gpu", "h100", "--all", "-o", tmp_path)
    assert told.exit_code == 0, told.output
    (norm,), (rotary,) = (list(tmp_path.glob(f"*_{name}.py")) for name in ("add_norm", "rotary"))
    norm, kernel = norm.read_text(), load(rotary, "of_execution_trace")
    assert "LAYERS = ('<class of the module>',)" in norm
    assert "set\nEPSILON" in norm
    assert "names no modules" in " ".join(rotary.read_text().split())
    with pytest.raises(ValueError, match="class of the module"):
        kernel.apply(__import__("torch").nn.Linear(2, 2))


def test_the_pair_of_a_gpu_has_the_groups_of_that_of_a_cpu_and_their_times():
    for workload in ("prefill", "train"):
        there, here = (executed_plan(*pair(workload, where), H100) for where in ("cuda", "cpu"))
        assert there.measured
        rows, others = ({(row.template, row.groups) for row in each.rows if row.template} for each in (there, here))
        assert rows == others
    norm = next(row for row in there.rows if row.template == "add_norm")
    assert norm.each.launches_before == 26  # with casts between bf16 and fp32, and gradients
    assert 150e3 < norm.before_ns < 260e3


def test_a_trace_of_another_run_is_refused():
    with pytest.raises(InputError, match="is not the execution trace of") as refused:
        executed_plan(pair("prefill")[0], pair("train")[1], H100)
    assert "one profile" in refused.value.hint


def test_what_lacks_is_said():
    trace, beside = pair("prefill")
    assert "--gpu h100" in fuse(trace, "--execution-trace", beside).output
    measured = SAMPLES.parent / "traces" / "h200_gpt2_prefill.json.gz"
    assert "--execution-trace FILE" in " ".join(fuse(measured).output.split())
    assert "is a folder of several traces" in fuse(trace.parent, "--all").output
    swapped = fuse(beside, "--execution-trace", trace, "--gpu", "h100")
    assert swapped.exit_code == 1
    assert "is an execution trace, which contains no times" in swapped.output
    assert "does not exist" in fuse(trace, "--execution-trace", "nowhere.json", "--gpu", "h100").output
