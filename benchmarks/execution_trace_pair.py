"""Records a profiler trace and the execution trace beside it, of a Llama of two layers: one forward, one training step.

    python benchmarks/execution_trace_pair.py OUT      # on the GPU, if there is one: 20 s

Each pair is OUT/NAME.trace.json.gz and OUT/NAME.et.json.gz. They are samples for `tracekit fuse --execution-trace`.
"""

import argparse
import gzip
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile, schedule
from transformers import LlamaConfig, LlamaForCausalLM

_SIZES = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1000}


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("out", type=Path)
    out = asked.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    cuda = torch.cuda.is_available()
    wide = {"hidden_size": 512, "intermediate_size": 1024} if cuda else {"hidden_size": 64, "intermediate_size": 128}
    torch.manual_seed(0)
    with torch.device("cuda" if cuda else "cpu"):
        model = LlamaForCausalLM(LlamaConfig(**_SIZES, **wide)).to(torch.bfloat16 if cuda else torch.float32)
        tokens = torch.randint(1000, (2, 128 if cuda else 16))
    where = "cuda" if cuda else "cpu"
    for name, step in (("prefill", _forward), ("train", _training)):
        record(lambda step=step: step(model, tokens), out / f"{where}_llama_{name}")  # type: ignore[misc]


def _forward(model: LlamaForCausalLM, tokens: torch.Tensor) -> None:
    with torch.no_grad():
        model(tokens, use_cache=False)


def _training(model: LlamaForCausalLM, tokens: torch.Tensor) -> None:
    model.zero_grad()
    model(tokens, labels=tokens, use_cache=False).loss.backward()


def record(step: Callable[[], None], path: Path) -> None:
    """Record one step after two others."""
    step()
    with tempfile.TemporaryDirectory() as folder:
        observed, traced = Path(folder) / "et.json", Path(folder) / "trace.json"
        observer = ExecutionTraceObserver().register_callback(str(observed))
        with profile(
            activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])],
            record_shapes=True,
            execution_trace_observer=observer,
            schedule=schedule(wait=0, warmup=1, active=1, repeat=1),
            on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(traced)),
        ) as profiler:
            for _ in range(2):
                step()
                if torch.cuda.is_available():
                    torch.cuda.synchronize()
                profiler.step()
        for written, kind in ((traced, "trace"), (observed, "et")):
            Path(f"{path}.{kind}.json.gz").write_bytes(gzip.compress(written.read_bytes(), 9, mtime=0))
    print(f"{path}: {sum(each.stat().st_size for each in path.parent.glob(f'{path.name}.*')):,} bytes", flush=True)


if __name__ == "__main__":
    main()
