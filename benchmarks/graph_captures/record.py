"""Record captures of CUDA graphs apart from their replays, as serving engines do, and profiles of Triton's Proton.

    python benchmarks/graph_captures/record.py OUT                # on a GPU: half a minute
    python benchmarks/graph_captures/record.py OUT --device cpu   # the eager part, anywhere

OUT receives traces.tar (a trace for each batch size with two warm-ups and the capture, one of a capture on two streams,
and one of all replays), proton.tar, and summary.json. Needs torch and transformers; Proton comes with Triton.
"""

import argparse
import contextlib
import gzip
import json
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function
from transformers import GPT2Config, GPT2LMHeadModel

BATCHES = (4, 2, 1)
REPLAYED = (4, 1, 2, 4)
_TOKENS = 16
_PROTON = (
    ("tree", "shadow", "eager"),
    ("tree", "python", "eager"),
    ("trace", "shadow", "eager"),
    ("tree", "shadow", "graph"),
    ("trace", "shadow", "graph"),
)
_TAKEN_OUT = ("traceName", "trace_id", "host_name")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    device = torch.cuda.get_device_name() if args.device == "cuda" else "cpu"
    summary: dict[str, Any] = {"device": device, "torch": torch.__version__}
    with tempfile.TemporaryDirectory() as folder:
        summary["proton"] = _proton(Path(folder)) if args.device == "cuda" else "needs a GPU"
        _pack(sorted(Path(folder).iterdir()), args.output / "proton.tar")
    with tempfile.TemporaryDirectory() as folder:
        try:
            summary["traces"] = _recorded(Path(folder), args.device)
        finally:
            _pack(sorted(Path(folder).glob("*.gz")), args.output / "traces.tar")
    (args.output / "summary.json").write_text(json.dumps(summary, indent=1))
    print(json.dumps(summary, indent=1))


def _recorded(folder: Path, device: str) -> dict[str, Any]:
    torch.manual_seed(0)
    sizes = {"n_layer": 2, "n_embd": 256, "n_head": 4, "vocab_size": 2048, "n_positions": 64}
    config = GPT2Config(**sizes, use_cache=False, bos_token_id=0, eos_token_id=0)
    model = GPT2LMHeadModel(config).to(device, torch.float16 if device == "cuda" else torch.float32).eval()
    told, replays = {}, {}
    with torch.inference_mode():
        for batch in BATCHES:
            ids = torch.zeros(batch, _TOKENS, dtype=torch.long, device=device)

            def run(ids: torch.Tensor = ids) -> torch.Tensor:
                return model(input_ids=ids).logits

            told[f"bs_{batch}"], replays[batch] = _captured(run, folder / f"bs_{batch}.json.gz", device)
        told["forked"], forked = _captured(_two_streams(device), folder / "forked.json.gz", device)
        told["replay"] = _replayed(replays, forked, folder / "replay.json.gz", device)
    return told


def _captured(run: Callable[[], Any], path: Path, device: str) -> tuple[Any, Callable[[], Any]]:
    """Record two eager runs and the capture of a third one; return counts of the trace, and what replays it."""
    run()
    with _profiled(path, device):
        for _ in range(2):
            run()
            _wait(device)
        replay: Callable[[], Any] = run
        if device == "cuda":
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                run()
            replay = _keeping(graph, run)
            _wait(device)
    return _counts(path), replay


def _keeping(graph: Any, run: Callable[[], Any]) -> Callable[[], Any]:
    """Return a function that replays the graph. It keeps `run`, whose inputs the graph reads and does not own."""

    def replay() -> None:
        assert run
        graph.replay()

    return replay


def _two_streams(device: str) -> Callable[[], Any]:
    """Return a function whose launches alternate between two streams."""
    a, b = (torch.randn(256, 256, device=device) for _ in range(2))
    side = torch.cuda.Stream() if device == "cuda" else None

    def run() -> torch.Tensor:
        if side is None:
            return (a @ b).relu() + (b @ a).sigmoid()
        side.wait_stream(torch.cuda.current_stream())
        x = a @ b
        with torch.cuda.stream(side):
            y = b @ a
        x = x.relu()
        with torch.cuda.stream(side):
            y = y.sigmoid()
        torch.cuda.current_stream().wait_stream(side)
        return x + y

    return run


def _replayed(replays: dict[int, Callable[[], Any]], forked: Callable[[], Any], path: Path, device: str) -> Any:
    for replay in (*replays.values(), forked):
        replay()
    _wait(device)
    with _profiled(path, device):
        for number, batch in enumerate(REPLAYED):
            with record_function(f"step_{number}"):
                with record_function(f"decode bs={batch}"):
                    replays[batch]()
                with record_function("two streams"):
                    forked()
                _wait(device)
    return _counts(path)


@contextlib.contextmanager
def _profiled(path: Path, device: str) -> Any:
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device == "cuda" else [])]
    with profile(activities=activities, record_shapes=True, with_stack=True) as profiler:
        yield
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        profiler.export_chrome_trace(file.name)
        trace = json.loads(Path(file.name).read_bytes())
    for key in _TAKEN_OUT:
        trace.pop(key, None)
    path.write_bytes(gzip.compress(json.dumps(trace, separators=(",", ":")).encode(), mtime=0))


def _counts(path: Path) -> dict[str, Any]:
    """Return what tells captures and replays apart: launches in the capture, and kernels by graph and their nodes."""
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    calls = sorted((e for e in events if e.get("cat") in ("cuda_runtime", "cuda_driver")), key=lambda e: e["ts"])
    begin = next((e["ts"] for e in calls if "StreamBeginCapture" in e["name"]), None)
    end = next((e["ts"] for e in calls if "StreamEndCapture" in e["name"]), None)
    inside = [e["name"] for e in calls if begin is not None and end is not None and begin < e["ts"] < end]
    work = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    nodes: dict[Any, list[Any]] = {}
    for e in sorted(work, key=lambda e: e["ts"]):
        nodes.setdefault(e["args"].get("graph id"), []).append(e["args"].get("graph node id"))
    return {
        "bytes": path.stat().st_size,
        "calls in the capture": Counter(inside),
        "work": len(work),
        "nodes by graph": {str(graph): ids[:24] for graph, ids in nodes.items()},
    }


def _proton(folder: Path) -> list[str]:
    """Run Proton in separate processes: it and torch.profiler cannot both receive the GPU's records."""
    script = Path(__file__).with_name("proton_kernels.py")
    running = [
        subprocess.Popen(
            [sys.executable, str(script), str(folder / "_".join(how)), *how],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for how in _PROTON
    ]
    return [process.communicate(timeout=60)[0].strip()[-1500:] for process in running]


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _pack(files: list[Path], path: Path) -> None:
    with tarfile.open(path, "w") as archive:
        for file in files:
            archive.add(file, file.name)


if __name__ == "__main__":
    main()
