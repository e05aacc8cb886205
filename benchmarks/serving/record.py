"""Serve random requests with the continuous batching of transformers, and write when each token came.

    python benchmarks/serving/record.py OUT                      # on a GPU: a minute
    python benchmarks/serving/record.py OUT --device cpu --tiny  # tries it anywhere

OUT receives requests-RATE.csv (what `tracekit serve-plan --requests` takes), tokens-RATE-MODE.csv (a row for each
request) and summary.json. Needs torch and transformers alone.
"""

import argparse
import csv
import json
import statistics
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from request_trace import Request, poisson, write
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig
from transformers.generation.configuration_utils import ContinuousBatchingConfig

_MODEL = Path(__file__).parents[2] / "tracekit" / "capture" / "architectures" / "llama-3.2-1b.json"
_TOKENS = 512
"""Tokens of a forward pass at most: longer prompts are split."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    model = _model(args.device, args.tiny)
    summary = [_steps(model, args.tiny)]
    for rate in (4.0,) if args.tiny else (4.0, 16.0):
        requests = poisson(rate, 4 if args.tiny else int(8 * rate), *((16, 6) if args.tiny else (512, 64)))
        write(requests, args.output / f"requests-{rate:g}.csv")
        for mode in ("eager",) if args.device == "cpu" else ("eager", "graphs"):
            try:
                rows = _served(model, requests, mode)
            except Exception as error:  # one mode may not run with this version
                summary.append({"rate": rate, "mode": mode, "error": f"{type(error).__name__}: {error}"[:300]})
                continue
            _write(rows, args.output / f"tokens-{rate:g}-{mode}.csv")
            summary.append({"rate": rate, "mode": mode} | _summary(rows))
            print(json.dumps(summary[-1]), flush=True)
    device = torch.cuda.get_device_name() if args.device == "cuda" else "cpu"
    told = {"device": device, "torch": torch.__version__, "runs": summary}
    (args.output / "summary.json").write_text(json.dumps(told, indent=1))
    print(json.dumps(told))


def _model(device: str, tiny: bool) -> Any:
    parameters = json.loads(_MODEL.read_text())
    parameters = parameters.get("config", parameters)
    kind = parameters.pop("model_type")
    if tiny:
        parameters |= {"num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128, "head_dim": 16}
        parameters |= {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 500}
    torch.manual_seed(0)
    with torch.device(device):
        config = AutoConfig.for_model(kind, **parameters)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa")
    return model.eval()


@torch.inference_mode()
def _steps(model: Any, tiny: bool) -> dict[str, Any]:
    """Return the milliseconds of plain forward passes, to tell the machine's speed."""
    times = {}
    for tokens in (1, 16 if tiny else 512):
        ids = torch.zeros(1, tokens, dtype=torch.long, device=model.device)
        seconds = []
        for _ in range(3 if tiny else 10):
            started = time.perf_counter()
            model(input_ids=ids, use_cache=False)
            if ids.is_cuda:
                torch.cuda.synchronize()
            seconds.append(time.perf_counter() - started)
        times[f"forward_{tokens}_ms"] = 1e3 * statistics.median(seconds)
    return times


def _served(model: Any, requests: list[Request], mode: str) -> list[dict[str, Any]]:
    """Return a row for each request, after a request that warms up."""
    generation = GenerationConfig(
        do_sample=False, eos_token_id=-1, max_new_tokens=max(r.output_tokens for r in requests)
    )
    batching = ContinuousBatchingConfig(
        block_size=32,
        num_blocks=64 if model.device.type == "cpu" else 2048,
        max_batch_tokens=_TOKENS,
        use_cuda_graph=mode == "graphs",
        use_async_batching=False,
        allow_block_sharing=False,
    )
    manager = model.init_continuous_batching(generation, batching)
    manager.start()
    try:
        for index in range(2):
            manager.add_request([1] * requests[0].prompt_tokens, f"warm-{index}", max_new_tokens=4)
            manager.get_result(timeout=30)
        return _sent(manager, requests)
    finally:
        manager.stop(block=True)


def _sent(manager: Any, requests: list[Request]) -> list[dict[str, Any]]:
    """Add each request when it is due, and collect what comes back."""
    started, added, results = time.perf_counter(), dict[str, float](), dict[str, Any]()
    waiting = list(enumerate(requests))
    while len(results) < len(requests):
        while waiting and time.perf_counter() - started >= waiting[0][1].arrival_s:
            index, request = waiting.pop(0)
            ids = [(7 * index + place) % 400 + 1 for place in range(request.prompt_tokens)]
            added[f"r{index}"] = time.perf_counter()
            manager.add_request(ids, f"r{index}", max_new_tokens=request.output_tokens, record_timestamps=True)
        result = manager.get_result(timeout=0.002)
        if result is not None and result.error:
            raise RuntimeError(result.error)
        if result is not None and result.is_finished():
            results[result.request_id] = result
        if not manager.is_running():
            raise RuntimeError("The loop of transformers stopped.")
    return [
        _row(request, started, added[name], results[name].timestamps)
        for name, request in ((f"r{index}", request) for index, request in enumerate(requests))
    ]


def _row(request: Request, started: float, added: float, stamps: list[float]) -> dict[str, Any]:
    return {
        "arrival_s": added - started,
        "prompt_tokens": request.prompt_tokens,
        "output_tokens": len(stamps),
        "first_s": stamps[0] - added,
        "between_s": " ".join(f"{after - before:.6f}" for before, after in pairwise(stamps)),
    }


def _write(rows: list[dict[str, Any]], path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _summary(rows: list[dict[str, Any]]) -> dict[str, float]:
    first = sorted(row["first_s"] for row in rows)
    between = sorted(float(each) for row in rows for each in row["between_s"].split())
    ends = max(row["arrival_s"] + row["first_s"] + sum(map(float, row["between_s"].split())) for row in rows)
    tokens = sum(row["output_tokens"] for row in rows)
    return {
        "tokens_per_s": tokens / ends,
        "ttft_p50_ms": 1e3 * first[len(first) // 2],
        "ttft_p99_ms": 1e3 * first[int(0.99 * (len(first) - 1))],
        "tbt_p50_ms": 1e3 * between[len(between) // 2],
        "tbt_p99_ms": 1e3 * between[int(0.99 * (len(between) - 1))],
    }


if __name__ == "__main__":
    main()
