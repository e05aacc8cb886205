"""An annotated trace leaves out what a trace tells about the machine, and says so."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import tracekit
from tracekit.analyzers.trace.kineto import chunks
from tracekit.cli import main
from tracekit.reports.viewer import annotate

SECRETS = ("hf_abcdefghijklmnopq", "node17.corp", "/home/alice", "--api-key", "model.py(12)")
KEPT = {
    "schemaVersion": 1,
    "deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-80GB", "numSms": 108}],
    "distributedInfo": {
        "backend": "nccl",
        "rank": 1,
        "world_size": 2,
        "pg_config": [{"pg_name": "0"}],
    },
    "cuda_runtime_version": 12040,
}
PRIVATE = {
    "environment": {"HF_TOKEN": SECRETS[0]},
    "hostname": SECRETS[1],
    "cmdline": f"python {SECRETS[2]}/train.py {SECRETS[3]}=1",
    "traceName": f"{SECRETS[2]}/trace.json",
}


def events() -> list[dict[str, Any]]:
    process = {"ph": "M", "pid": 1, "tid": 0, "ts": 0}
    work = {"ph": "X", "pid": 0, "tid": 7, "ts": 10.125, "dur": 5.5}
    host = {"ph": "X", "pid": 1, "tid": 1, "ts": 1.5, "dur": 20}
    return [
        {**host, "cat": "python_function", "name": f"{SECRETS[2]}/{SECRETS[4]}: forward", "args": {"Python id": 1}},
        {**host, "cat": "python_function", "name": "nn.Module: Linear_0", "args": {"Python id": 2}},
        {
            **host,
            "cat": "cpu_op",
            "name": "aten::mm",
            "args": {"Call stack": SECRETS[4], "Input Dims": [[4, 4]]},
        },
        {**host, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "args": {"correlation": 3}, "stack": [SECRETS[4]]},
        {**work, "cat": "kernel", "name": "gemm", "args": {"correlation": 3, "hostname": SECRETS[1], "device": 0}},
        {**process, "name": "process_name", "args": {"name": f"python {SECRETS[2]}/train.py {SECRETS[3]}=1"}},
        {**process, "name": "thread_name", "args": {"name": "thread 1 (python)"}},
        {**process, "name": "host_info", "args": {"name": SECRETS[1]}},
    ]


def text_of(layout: str) -> str:
    private = {**PRIVATE, "distributedInfo": {**KEPT["distributedInfo"], "hostname": SECRETS[1]}}
    if layout == "bare":
        return json.dumps(events())
    before, after = {**KEPT, **private}, {}
    if layout == "after":
        before, after = after, before
    return json.dumps({**before, "traceEvents": events(), **after}, indent=1 if layout == "spaced" else None)


def parsed(path: Path) -> Any:
    raw = path.read_bytes()
    return json.loads(gzip.decompress(raw) if raw.startswith(b"\x1f\x8b") else raw)


@pytest.mark.parametrize("layout", ["before", "after", "spaced", "bare"])
def test_what_is_private_is_left_out_and_the_rest_stays(tmp_path: Path, layout: str) -> None:
    source, target = tmp_path / "in.json", tmp_path / "out.trace.json"
    source.write_text(text_of(layout))
    result = CliRunner().invoke(main, ["analyze", str(source), "-o", str(target)])
    assert (result.exit_code, "Left out: " in result.stderr, "--keep-metadata" in result.stderr) == (0, True, True)
    assert "1 frames of call stacks" in result.stderr
    assert [secret for secret in SECRETS if secret in target.read_text()] == []
    content = parsed(target)
    recorded = content if layout == "bare" else content["traceEvents"]
    recorded = [event for event in recorded if not str(event.get("cat")).startswith("tracekit")]
    names = [event["name"] for event in recorded]
    assert names == ["nn.Module: Linear_0", "aten::mm", "cudaLaunchKernel", "gemm", "process_name", "thread_name"]
    assert recorded[1]["args"] == {"Input Dims": [[4, 4]]}
    assert recorded[3] == {**events()[4], "args": {"correlation": 3, "device": 0}}
    assert recorded[4]["args"] == {"name": "python"}
    if layout != "bare":
        assert {key: content[key] for key in KEPT} == KEPT
        assert not PRIVATE.keys() & content.keys()
    before, after = (tracekit.analyze(path, use_cache=False) for path in (source, target))
    assert before.work.equals(after.work)
    assert before.source == after.source


def test_all_of_it_can_be_kept(tmp_path: Path) -> None:
    source, target = tmp_path / "in.json", tmp_path / "out.trace.json"
    source.write_text(text_of("before"))
    result = CliRunner().invoke(main, ["analyze", str(source), "-o", str(target), "--keep-metadata"])
    assert (result.exit_code, "Left out" in result.stderr) == (0, False)
    assert parsed(target)["traceEvents"][-len(events()) :] == events()
    assert {key: parsed(target)[key] for key in PRIVATE} == PRIVATE


def test_a_trace_that_is_replaced_by_itself_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "in.trace.json"
    path.write_text(text_of("before"))
    assert CliRunner().invoke(main, ["analyze", str(path), "-o", str(path)]).exit_code == 0
    assert parsed(path)["traceEvents"][-len(events()) :] == events()


def test_damage_hides_nothing_and_is_counted(tmp_path: Path) -> None:
    source, target = tmp_path / "in.json", tmp_path / "out.trace.json"
    source.write_text(text_of("before").replace('"Input Dims": [[4, 4]]', '"Input Dims": [[4, '))
    removed = annotate(source, target, tracekit.analyze(source, use_cache=False))
    assert (removed.damaged, removed.stacks) == (1, 1)
    assert [secret for secret in SECRETS if secret in target.read_text()] == []
    assert "1 damaged events" in str(removed)


@pytest.mark.parametrize("size", [300, 1000, 5000])
def test_chunks_of_any_size_give_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Chunks may end inside an event, at what looks like a boundary."""
    nested = {"ph": "X", "cat": "cpu_op", "name": "x", "pid": 1, "tid": 1, "ts": 2, "dur": 1}
    nested["args"] = {"Call stack": SECRETS[4], "list": [{"name": "a"}, {"name": "b"}]}
    source = tmp_path / "in.json"
    many = [event for at in range(40) for event in (nested, *events())]
    source.write_text(json.dumps({**KEPT, **PRIVATE, "traceEvents": many}))
    analysis = tracekit.analyze(source, use_cache=False)
    annotate(source, tmp_path / "whole.json", analysis)
    monkeypatch.setattr(chunks, "CHUNK_BYTES", size)
    monkeypatch.setattr("tracekit.analyzers.trace.source._BLOCK_BYTES", size // 3)
    annotate(source, tmp_path / "cut.json", analysis)
    assert parsed(tmp_path / "cut.json") == parsed(tmp_path / "whole.json")
    assert [secret for secret in SECRETS if secret in (tmp_path / "cut.json").read_text()] == []


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "pipe")
    result = CliRunner().invoke(main, ["analyze", str(tmp_path / "pipe"), "-o", str(tmp_path / "x.json.gz")])
    assert (result.exit_code, "A pipe can be read only once." in result.stderr) == (1, True)
