"""Derives the features of a GPU from its compute capability (PyTorch 2.11 and later)."""

_NVIDIA_FROM = {
    "fp16-tensor": (7, 0),
    "bf16": (8, 0),
    "tf32": (8, 0),
    "fp8": (8, 9),
    "int8-tensor": (7, 5),
    "flash-attention": (8, 0),
    "efficient-attention": (5, 0),
    "compile": (7, 0),
    "llm-int8": (7, 5),
    "float8-dynamic": (8, 9),
    "cuda-graphs": (3, 5),
}
"""Feature -> first compute capability that has it."""

_CDNA3 = frozenset(_NVIDIA_FROM) - {"llm-int8"} | {"max-autotune-gemm"}
_AMD = {"cdna2": _CDNA3 - {"tf32", "fp8", "float8-dynamic"}, "cdna3": _CDNA3, "cdna4": _CDNA3 - {"tf32"}}
_DATA_CENTRE_BLACKWELL = ((10, 0), (10, 3))
_AUTOTUNE_SMS = 68

FEATURES = frozenset(_NVIDIA_FROM) | {"int4-tensor", "cudnn-attention", "flash-attention-3", "max-autotune-gemm"}


def features(vendor: str, architecture: str, capability: tuple[int, int], sms: int) -> frozenset[str]:
    """Return the subset of FEATURES that a GPU has.

    Sources: PyTorch's sdp_utils.cpp (attention backends; cuDNN's where it is preferred), Inductor's is_big_gpu
    (max-autotune-gemm), torchao and bitsandbytes (float8-dynamic, llm-int8), CUDA's table of capabilities; AMD's CDNA
    instruction set references (xf32 only on CDNA3, fp8 since CDNA3).
    """
    if vendor == "amd":
        return _AMD.get(architecture, frozenset())
    having = {name for name, first in _NVIDIA_FROM.items() if capability >= first}
    if capability == (10, 3):
        having.discard("int8-tensor")  # Blackwell Ultra kept a fraction of the integer units.
    if (7, 5) <= capability < (9, 0):
        having.add("int4-tensor")
    if capability == (9, 0) or capability in _DATA_CENTRE_BLACKWELL:
        having.add("cudnn-attention")
    if capability == (9, 0):
        having.add("flash-attention-3")
    if sms >= _AUTOTUNE_SMS:
        having.add("max-autotune-gemm")
    return frozenset(having)
