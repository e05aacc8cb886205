"""What `fuse` says where it cannot write a kernel: without Triton, for another type or GPU, or with nothing to fuse."""

import gzip
import json
import shutil
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from click.testing import CliRunner
from msgspec import structs

from tracekit.analyzers.core import TracekitError
from tracekit.analyzers.cost import hardware
from tracekit.analyzers.fuse import plan
from tracekit.analyzers.fuse.planned import compared_with_compile
from tracekit.cli import main
from tracekit.fuse import obstacle, proof
from tracekit.fuse.run_kernels import rows_of
from tracekit.fuse.writing import Written, load, text
from tracekit.reports.fuse import plan_text

H100 = hardware.find("h100")


@pytest.fixture
def planned(llama):
    return next(row for row in plan(llama[1], H100) if row.template == "add_norm")


def test_without_triton_it_says_what_to_install(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    path = tmp_path / "add_norm.py"
    path.write_text(text(Written("add_norm")))
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(TracekitError, match="pip install 'triton"):
        load(path, "without_triton")


def test_triton_that_was_imported_for_a_gpu_cannot_interpret(monkeypatch):
    language = ModuleType("triton.language")
    language.sum = type("JITFunction", (), {})()
    monkeypatch.setitem(sys.modules, "triton.language", language)
    monkeypatch.setattr(proof, "_has_gpu", lambda: False)
    with pytest.raises(TracekitError, match="in a separate process"):
        proof.check_interpreter()
    monkeypatch.setattr(proof, "_has_gpu", lambda: True)
    proof.check_interpreter()


def test_other_types_and_old_gpus_are_refused_with_advice(planned):
    assert obstacle(planned, H100) == ""
    assert "bf16, fp16 or fp32" in obstacle(replace(planned, dtype="double"), H100)
    assert "--dtype fp16" in obstacle(planned, hardware.find("t4"))
    pascal = structs.replace(H100, name="P100", compute_capability=(6, 0))
    assert "another --gpu" in obstacle(replace(planned, dtype="float"), pascal)
    assert "NVIDIA" in obstacle(planned, hardware.find("mi300x"))
    refused = obstacle(replace(planned, template="", library=""), H100)
    assert "layers that are x + a(norm(x))" in refused
    assert "torch.compile" in refused
    chain = replace(planned, template="", library="", pattern="pointwise chain", ops="add, atan2")
    assert "code is not generated for atan2" in obstacle(chain, H100)


def test_what_cannot_be_written_is_said_before_anything_is_proved(run, tmp_path):
    blocked = tmp_path / "file"
    blocked.touch()
    told = fuse(run, "--all", "-o", blocked)
    assert told.exit_code == 1
    assert "is not a writable folder" in told.output
    assert "residual + norm" not in told.output


def test_groups_that_are_not_there_and_contrary_options_are_refused(run, tmp_path):
    wrong = fuse(run, "--group", 99, "-o", tmp_path)
    assert wrong.exit_code == 1
    assert "no group 99" in wrong.output
    assert "--all" in wrong.output
    assert fuse(run, "--all", "--group", 1).exit_code == 2


def test_a_group_that_was_asked_for_and_has_no_kernel_ends_with_status_1(run, llama, tmp_path):
    number = next(n for n, row in enumerate(plan(llama[1], H100), 1) if not row.template)
    told = fuse(run, "--group", number, "-o", tmp_path)
    assert told.exit_code == 1
    assert "no template fits this group (rms_norm and layer_norm of torch" in told.output


def test_what_did_not_run_is_not_proved(tmp_path):
    """GPT-2's GELU epilogue needs a GPU: its file is written, and says so."""
    pytest.importorskip("triton")
    if __import__("torch").cuda.is_available():
        pytest.skip("the epilogue runs here")
    told = fuse(_gpt2(tmp_path, dtype="bf16"), "--all", "--gpu", "h100")
    assert told.exit_code == 0, told.output
    (line,) = (line for line in told.output.splitlines() if line.startswith(" ") and "_gelu_product.py" in line)
    assert "not proved here: without its GPU it returns its reference" in line
    (path,) = (tmp_path / "run/kernels").glob("*_gelu_product.py")
    assert "Not proved where it was written" in path.read_text()


def test_in_fp32_the_epilogue_is_not_planned(tmp_path):
    rows, _ = rows_of(_gpt2(tmp_path, dtype="fp32"), H100)
    assert "gelu_product" not in {row.template for row in rows} and "pointwise_chain" in {row.template for row in rows}


def _gpt2(folder, **settings):
    import tracekit

    config = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 64, "n_layer": 1, "n_head": 2}
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": 64, "bos_token_id": 0, "eos_token_id": 0}))
    tracekit.profile(
        str(folder), output=folder / "run", gpu="h100", device="model", seq_len=16, workload="prefill", **settings
    )
    return folder / "run"


def test_a_broken_triton_is_no_bug_of_tracekit(tmp_path, monkeypatch):
    (tmp_path / "triton").mkdir()
    (tmp_path / "triton" / "__init__.py").write_text("raise ImportError('no libcuda')")
    for name in [name for name in sys.modules if name.partition(".")[0] == "triton"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(tmp_path))
    path = tmp_path / "add_norm.py"
    path.write_text(text(Written("add_norm")))
    with pytest.raises(TracekitError, match="no libcuda"):
        load(path, "broken_triton")


def fuse(*arguments):
    return CliRunner().invoke(main, ["fuse", *map(str, arguments)])


def test_the_plan_says_who_is_faster(planned):
    assert "torch.compile's time, measured" in plan_text([planned], H100)
    assert "is as fast" in compared_with_compile("gated_activation", training=True)
    assert "faster than" in compared_with_compile("cross_entropy", training=True)
    assert compared_with_compile("cross_entropy", training=False) == ""


def test_who_is_faster_is_what_was_measured():
    """Each range spans the rows of the benchmarks; those of an own module are among them."""
    file = Path(__file__).parents[2] / "benchmarks" / "data" / "fused_kernels.json.gz"
    measured = json.loads(gzip.decompress(file.read_bytes()))
    ratios = defaultdict(list)
    for gpu in ("h100", "h200"):
        for row in measured[gpu]["rows"]:
            if row.get("compiled_us"):
                ratios[row["template"], row["run"].endswith("train")].append(row["after_us"] / row["compiled_us"])
    for step in measured["own module"].values():
        templates = {"residual + norm": "add_norm", "gated activation": "gated_activation"}
        for row in (row for row in step["plan"] if row["measured_ns"] > 0):
            template = templates.get(row["pattern"], "packed_projections")
            ratios[template, False].append(row["measured_ns"] / row["compiled_ns"])
    for (template, training), values in ratios.items():
        span = f"{min(values):.2f} to {max(values):.2f} of torch.compile's time"
        assert span in compared_with_compile(template, training=training), template


def test_a_trace_without_a_graph_has_guesses_and_no_kernels(tmp_path):
    trace = tmp_path / "trace.json"
    events = [event for number, op in enumerate(("sigmoid", "tanh")) for event in _launching(f"aten::{op}", number)]
    trace.write_text(json.dumps({"deviceProperties": [{"id": 0, "name": "Tesla T4"}], "traceEvents": events}))
    shown = CliRunner().invoke(main, ["fuse", str(trace)])
    assert shown.exit_code == 0, shown.output
    assert "sigmoid, tanh" in shown.output
    assert "these groups are guesses" in " ".join(shown.output.split())
    for asked in (["fuse", str(trace), "--all"], ["predict", str(trace), "--apply", "fused:all"]):
        refused = CliRunner().invoke(main, asked)
        assert refused.exit_code == 1
        assert "does not contain the tensors" in refused.output or "no tensors" in refused.output


def _launching(name, number):
    begins, correlated = 20 * number, {"correlation": number + 1}
    shapes = {"Input Dims": [[4096, 4096]], "Input type": ["float"], "Concrete Inputs": [""]}
    op = {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": begins, "dur": 9, "args": shapes}
    launch = op | {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": begins + 2, "dur": 3, "args": correlated}
    kernel = {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": begins + 6, "dur": 10}
    return op, launch, kernel | {"args": {"device": 0, "stream": 7, **correlated}}


def test_a_missing_folder_is_said(tmp_path):
    told = fuse(tmp_path / "nowhere", "--all")
    assert told.exit_code == 1
    assert "nowhere does not exist" in told.output


def test_nothing_to_fuse_is_said():
    assert plan_text([], SimpleNamespace(name="H100")).startswith("Nothing can be fused")


def test_a_gpu_file_that_a_run_names_is_not_read_and_its_gpu_is_that_of_the_trace(run, tmp_path):
    elsewhere, folder = tmp_path / "elsewhere.toml", tmp_path / "run"
    elsewhere.write_text("password = 'hunter2'")
    shutil.copytree(run, folder)
    settings = json.loads((folder / "run.json").read_text())["settings"]
    settings |= {"gpu": "my-gpu", "gpu_file": str(elsewhere)}
    (folder / "run.json").write_text(json.dumps({"settings": settings}))
    row = {"sms": 142, "clock_ghz": 2.5, "memory_gb": 48, "bandwidth_gbs": 864, "l2_mb": 96, "tdp_w": 350}
    row |= {"compute_capability": [8, 9], "peaks_tflops": {"fp32": 91.6, "fp16": 362, "bf16": 362}, "name": "Mine"}
    capture = {"version": "1", "source": "modelled", "device": "model", "gpu": "my-gpu", "device_name": "Mine"}
    for keys in ({}, {"tracekit": {**capture, "gpu_row": row}}):
        kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 1, "args": {"stream": 7}}
        (folder / "trace.json.gz").write_bytes(gzip.compress(json.dumps({**keys, "traceEvents": [kernel]}).encode()))
        done = CliRunner().invoke(main, ["fuse", str(folder)])
        assert done.exit_code == (0 if keys else 1), done.output
        assert ("on the Mine" if keys else "names no GPU") in done.output
        assert "password" not in done.output and str(elsewhere) not in done.output
