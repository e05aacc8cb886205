"""SGLang on a CPU under its own profiler: `python sglang_cpu.py SAMPLE [detailed]`.

    pip install torch==2.13.0 transformers==5.12.1    # and what else sglang asks for, but for CUDA's packages
    pip install --no-deps sglang==0.5.18 torchvision==0.28.0    # detailed: sglang 0.5.23

Its packages are built for CUDA. What cannot be loaded without has stand-ins, which are imported, but not called in the
run: torchvision's ops, and a rotary embedding. With `detailed`, its detailed annotations in the place of stacks.
"""

import sys
import tempfile
from pathlib import Path
from types import ModuleType

import torch
from workload import BATCH_TOKENS, NEW_TOKENS, PROMPTS, keep, write_model

_POOLS = ("roi_align", "ps_roi_align", "roi_pool", "ps_roi_pool", "deform_conv2d")
_VISION_OPS = (*_POOLS, *(f"_{pool}_backward" for pool in _POOLS), "nms", "qnms", "qroi_align")
# In the module's scope: SGLang's scheduler is a process of its own, which imports this file.
_vision = torch.library.Library("torchvision", "DEF")
for _op in _VISION_OPS:
    _vision.define(f"{_op}(Tensor input) -> Tensor")
_rotary = ModuleType("vllm._custom_ops")
_rotary.rotary_embedding = None
sys.modules |= {"vllm": ModuleType("vllm"), "vllm._custom_ops": _rotary}


def record(folder: Path, detailed: bool) -> None:
    from sglang import Engine

    engine = Engine(
        model_path=write_model(folder / "model"),
        load_format="dummy",
        skip_tokenizer_init=True,
        device="cpu",
        attention_backend="torch_native",
        sampling_backend="pytorch",
        grammar_backend="none",
        disable_cuda_graph=True,
        disable_overlap_schedule=True,
        disable_radix_cache=True,
        enable_mixed_chunk=True,
        sleep_on_idle=True,
        chunked_prefill_size=BATCH_TOKENS,
        context_length=BATCH_TOKENS,
        max_total_tokens=8 * BATCH_TOKENS,
        max_running_requests=8,
    )
    sampling = [{"temperature": 0, "max_new_tokens": n, "ignore_eos": True} for n in NEW_TOKENS]
    engine.generate(input_ids=PROMPTS, sampling_params=sampling)
    settings = {"detailed_annotations": True} if detailed else {"record_shapes": True}
    engine.start_profile(output_dir=str(folder / "recorded"), activities=["CPU"], with_stack=not detailed, **settings)
    engine.generate(input_ids=PROMPTS, sampling_params=sampling)
    engine.stop_profile()
    engine.shutdown()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        record(Path(place), detailed="detailed" in sys.argv)
        keep(Path(place, "recorded"), Path(sys.argv[1]))
