"""Known reasons why a prediction differs from a published result."""

from accuracy.published_cases import Case

_CAUSES = {
    (
        "t4",
        "half-precision:fp16+compile",
    ): "Published, fp16 makes the compiled run 1.87 times as fast. Its weights take "
    "2 of the 9 ms in fp32, and a step that waits for its host gains nothing from fewer bytes: it must have replayed "
    "graphs, which the fp32 run did not.",
    ("v100-sxm", "compile"): "Host of an older machine and software: only its range is known.",
    ("a100-80gb-sxm", "compile"): "Close to both bounds: with a host 15 % slower than assumed, the step is host-bound.",
    ("a100-80gb-sxm", "sdpa:flash-attention-2"): "transformers of that time unpadded keys and values in each layer, "
    "with two waits for the device: the low end. Version 5 does not.",
    ("a100-80gb-sxm", "llm-int8"): "Since 2025, bitsandbytes' GEMMs are PyTorch operators, whose Python takes the "
    "host longer.",
    ("h100-2.4tb", "int4-weight-only"): "The int4 kernel was fitted on H200s; on this H100 variant it is slower.",
    ("rtx-3080-ti-laptop", "sdpa"): "GPT-2's eager attention of 2024 launched more than today's; only what its "
    "source shows is added. At batch 2 and 4 its mask ruled out kernels that split the keys.",
    ("t4", "compile"): "Compilers of 2023 fused less than today's.",
}


def cause(case: Case) -> str:
    return _CAUSES.get((case.gpu, case.apply), "Within the error of the kernel model.")
