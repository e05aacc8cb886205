"""Classifies kernels and runtime calls by their names. The result does not depend on the order of the patterns."""

import re
from collections.abc import Callable, Hashable, Iterable
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt
import pandas as pd

_LAUNCH = re.compile(
    r"launch|memcpy|memset|memprefetch|^urEnqueue(?:USM|MemBuffer)|^zeCommandListAppendMemory", re.IGNORECASE
)
_COMMUNICATION = re.compile(
    r"nccl(?:Dev)?Kernel|rccl|nvshmem|ibgda|cross_device_reduce|deep_?ep\b|msccl|oneccl|userbuffers"
    r"|(?:^|[^a-z])(?:inter|intra)[_-]?node(?:[^a-z]|$)|\bep::|notify_(?:dispatch|combine)|send_?recv|(?:^|[^a-z])a2a"
    r"|(?:^|[^a-z])(?:all_?reduce|all_?gather|reduce_?scatter|all_?to_?all)"
    r"|(?:one|two|multimem)_?shot_?all_?reduce",
    re.IGNORECASE,
)
_KINDS = {
    "attention": re.compile(r"fmha|flash_?(?:attn|attention|fwd|bwd)|attention|\bmha_|sdpa", re.IGNORECASE),
    "convolutions": re.compile(r"conv(?!ert)|winograd|[wd]grad|fprop|cudnn.*engine|fft2d|im2col", re.IGNORECASE),
    "GEMMs": re.compile(r"gemm|nvjet|Cijk_|cutlass|xmma|gemv|matmul|wvSplitK|splitK", re.IGNORECASE),
    "normalization": re.compile(r"norm|bn_(?:fw|bw)", re.IGNORECASE),
    "the optimizer": re.compile(r"multi_tensor|adam", re.IGNORECASE),
    "gathers": re.compile(r"gather|scatter|index|embedding", re.IGNORECASE),
    "layout changes": re.compile(r"nchwTo|nhwcTo|transpose|permut", re.IGNORECASE),
    "copies": re.compile(r"memcpy|memset", re.IGNORECASE),
    "elementwise kernels": re.compile(r"elementwise|triton_poi|pointwise|CatArray|roll_cuda", re.IGNORECASE),
}
"""Kinds of kernels by their names; the first that matches applies."""
_NVJET = re.compile(r"nvjet(?:_sm\d+)?_([a-z])[a-z]{2}_")
_OF_NVJET = {"t": "bf16", "h": "fp16", "s": "tf32", "q": "fp8"}
_PRECISIONS = {
    "fp4": re.compile(r"fp4|e2m1", re.IGNORECASE),
    "fp8": re.compile(r"fp8|e4m3|e5m2", re.IGNORECASE),
    "bf16": re.compile(r"bf16|bfloat16|Cijk_\w+?_BB?S?_", re.IGNORECASE),
    "fp16": re.compile(r"fp16|f16|half|h884|h1688|hmma|Cijk_\w+?_HH?S?_", re.IGNORECASE),
    "tf32": re.compile(r"tf32|s1688", re.IGNORECASE),
    "fp32": re.compile(r"sgemm|scudnn|f32f32_f32f32|simt_s|<float|Cijk_\w+?_SB_", re.IGNORECASE),
    "fp64": re.compile(r"dgemm|f64f64|<double", re.IGNORECASE),
}
"""Precisions in which kernels say that they multiply; the first that matches applies."""
_HELPER = re.compile(
    r"transpose|nchwToNhwc|nhwcToNchw|convertTensor|elementwise_kernel|CatArray|splitK_?reduce|reduce_kernel|SubTensorOp"
    r"|im2(?:col|d2col)|col2im|(?<!pre)fill|memset|memcpy|padding|scalePackedTensor|compute\w*Offsets|splitkv_combine"
    r"|dot_do_o|convert_dq|reduce_wgrad|reduce_1Block|lean_reduction|flip_filter|fft2d",
    re.IGNORECASE,
)
_BESIDE = re.compile(
    r"init_device_workspace|precompute_indices|prepare_grouped_gemm|generateWinogradTiles"  # before
    r"|execute_split_k|ReduceSplitK|PostGSU|Bwd\w*(?:Preprocess|Postprocess|DotDoO|ConvertQGrad)|FwdCombine|SplitKVCombine"
)
"""Helpers whose names contain the name of the kernel that they serve."""
_MULTIPLIES = re.compile(r"gem[mv]|Cijk_|nvjet|xmma|cutlass|winograd|fmha|implicit_conv", re.IGNORECASE)
_FP32 = re.compile(r"sgemm|scudnn|f32f32_f32f32|simt_s|(?:gemv|engine|winograd)\w*<float|Cijk_\w+?_SB_", re.IGNORECASE)
_16_BITS = re.compile(r"bf16|bfloat16|half|[hf]16|h884|h1688|hmma", re.IGNORECASE)
_TF32 = re.compile(r"tf32|s1688", re.IGNORECASE)
_WIDE_ATTENTION = re.compile(r"fmha_cutlass[FB]_f32_")
_SPARSE = re.compile(r"csrm[mv]|coom[mv]|spm[mv]_|cusparse", re.IGNORECASE)
_BLUESTEIN = re.compile(r"bluestein", re.IGNORECASE)
_DOUBLES = re.compile(
    r"<double\b|\blambda\(double\b|(?<![a-z])[dz]gem[mv]|gemv\w*<[^>]*\bdouble\b|f64f64|dmma|d884|Cijk_\w+?_DB_",
    re.IGNORECASE,
)
"""A double among a kernel's arguments is a number, such as a learning rate."""
_UNALIGNED = re.compile(r"tensorop\w*_align[12](?:\D|$)")
_TILE = re.compile(r"(?:nvjet|gemm|_MT)\w*?(\d+)x(\d+)")
_VECTOR = re.compile(r"gemv")
_LAYOUT = re.compile(r"nchwTo\w*nhwc|nhwcTo\w*nchw", re.IGNORECASE)
_SLOW_NORM = re.compile(r"batch_norm_(?:backward|collect_statistics)_kernel")
_LONGEST_NAME = 1 << 13
"""Characters of a name in which patterns are sought: the time for some patterns grows with the square of the length."""
TO_DEVICE = re.compile(r"HtoD|HostToDevice|^Memcpy [HM]2D", re.IGNORECASE)
TO_HOST = re.compile(r"DtoH|DeviceToHost|^Memcpy D2[HM]", re.IGNORECASE)
WITHIN_DEVICE = re.compile(r"DtoD|DeviceToDevice|Device -> Device", re.IGNORECASE)
BETWEEN_DEVICES = re.compile(r"PtoP|PeerToPeer|Memcpy Peer", re.IGNORECASE)
PAGEABLE, PINNED = re.compile("Pageable"), re.compile("Pinned")
"""Names of copies by where they go, and by the host memory that they read or write."""


def is_launch(names: pd.Series) -> npt.NDArray[np.bool_]:
    """Return which runtime and driver calls put work on a device: kernel and graph launches, copies and sets."""
    return matching(names, _LAUNCH)


def is_communication(names: "pd.Series | npt.NDArray[np.object_]") -> npt.NDArray[np.bool_]:
    """Return which kernels move data between devices (NCCL, RCCL, NVSHMEM, DeepEP, all-reduces of serving engines)."""
    return matching(names, _COMMUNICATION)


def is_helper(names: pd.Series) -> npt.NDArray[np.bool_]:
    """Return which kernels only prepare operands or combine results of a GEMM, convolution or attention kernel.

    They are transposes, layout conversions, copies, fills, split-K reductions, and the set-up of workspaces.
    """
    return (matching(names, _HELPER) & ~matching(names, _MULTIPLIES)) | matching(names, _BESIDE)


def may_multiply(names: pd.Series) -> npt.NDArray[np.bool_]:
    """Return which kernels are GEMMs, convolutions or attention, by their names."""
    return matching(names, _MULTIPLIES)


def in_doubles(names: pd.Series) -> npt.NDArray[np.bool_]:
    """Return which kernels compute with 64-bit numbers, by their names."""
    return matching(names, _DOUBLES)


def attends_in_32_bits(names: pd.Series) -> npt.NDArray[np.bool_]:
    """Return which kernels are fused attention on 32-bit numbers, by their names."""
    return matching(names, _WIDE_ATTENTION)


def is_bluestein(names: pd.Series) -> npt.NDArray[np.bool_]:
    """Return which kernels are FFTs by Bluestein's algorithm: of lengths with a large prime factor."""
    return matching(names, _BLUESTEIN)


def is_elementwise(names: pd.Series) -> npt.NDArray[np.bool_]:
    """Return which kernels are chains of pointwise work, by their names."""
    return np.array([named_kind(name) == "elementwise kernels" for name in names.astype(str)], dtype=bool)


def multiplies_in(names: pd.Series) -> npt.NDArray[np.object_]:
    """Return "tf32" or "fp32" for kernels whose names say that they multiply in it; "" for all others."""
    tf32, fp32 = (matching(names, pattern) & ~matching(names, _16_BITS) for pattern in (_TF32, _FP32))
    return np.select([tf32, fp32], ["tf32", "fp32"], "").astype(object)


@lru_cache(maxsize=1 << 15)
def named_kind(name: str) -> str:
    """Return the kind of work that a kernel's name tells, such as "GEMMs"; "" if it tells none."""
    if _COMMUNICATION.search(name):
        return "communication"
    return next((kind for kind, pattern in _KINDS.items() if pattern.search(name)), "")


@lru_cache(maxsize=1 << 15)
def named_precision(name: str) -> str:
    """Return the precision that the name of a GEMM, convolution or attention kernel tells; "" if it tells none."""
    if found := _NVJET.search(name):
        return _OF_NVJET.get(found[1], "")
    return next((precision for precision, pattern in _PRECISIONS.items() if pattern.search(name)), "")


def is_unaligned(names: pd.Series) -> npt.NDArray[np.bool_]:
    """Return which kernels on tensor cores load one or two elements at a time, by their names."""
    return matching(names, _UNALIGNED)


def narrower_tile_side(names: pd.Series) -> npt.NDArray[np.int64]:
    """Return the shorter side, in rows or columns, of the tile that each GEMM's kernel computes, by its name.

    It is 1 for a GEMV, and 0 for kernels whose names state no tile.
    """
    codes, distinct = pd.factorize(names)
    return np.array([*(_tile_side(str(name)) for name in distinct), 0], dtype=np.int64)[codes]


@lru_cache(maxsize=1 << 15)
def _tile_side(name: str) -> int:
    if _VECTOR.search(name):
        return 1
    tile = _TILE.search(name)
    return min(int(tile[1]), int(tile[2])) if tile else 0


def changes_layout(names: pd.Series) -> npt.NDArray[np.bool_]:
    """Return which kernels copy images from channels first to channels last, or back, for cuDNN's convolutions."""
    return matching(names, _LAYOUT)


def normalizes_channels_first(names: pd.Series) -> npt.NDArray[np.bool_]:
    """Return which kernels are PyTorch's own of batch norms in training, or of their gradients, with channels first."""
    return matching(names, _SLOW_NORM)


def is_host_copy(names: pd.Series) -> npt.NDArray[np.bool_]:
    """Return which copies are between host and device.

    Copies of an XPU write M for memory that its driver does not know.
    """
    return Said(names).copies_by_host


def is_copy_to_host(names: pd.Series) -> npt.NDArray[np.bool_]:
    return matching(names, TO_HOST)


class Said:
    """What the names of work say, as masks with one entry per name. Each is computed when it is first read."""

    def __init__(self, names: pd.Series) -> None:
        self._names = names

    @cached_property
    def communicates(self) -> npt.NDArray[np.bool_]:
        return is_communication(self._names)

    @cached_property
    def helps(self) -> npt.NDArray[np.bool_]:
        """Kernels that only prepare operands or combine results of others."""
        return is_helper(self._names)

    @cached_property
    def is_sparse(self) -> npt.NDArray[np.bool_]:
        """Kernels that multiply by a sparse matrix."""
        return matching(self._names, _SPARSE)

    @cached_property
    def uses_tf32(self) -> npt.NDArray[np.bool_]:
        """Kernels of GEMMs in TF32. With fp32 operands, s1688 is the shape of a TF32 instruction."""
        return matching(self._names, _TF32)

    @cached_property
    def copies_to_device(self) -> npt.NDArray[np.bool_]:
        return matching(self._names, TO_DEVICE)

    @cached_property
    def copies_by_host(self) -> npt.NDArray[np.bool_]:
        """Copies between host and device."""
        return self.copies_to_device | is_copy_to_host(self._names)

    @cached_property
    def copies_between_devices(self) -> npt.NDArray[np.bool_]:
        return matching(self._names, BETWEEN_DEVICES)


def matching(names: "pd.Series | npt.NDArray[np.object_]", pattern: re.Pattern[str]) -> npt.NDArray[np.bool_]:
    """Return which names contain a match of the pattern. Each distinct name is searched once."""
    codes, distinct = _distinct(names)
    return np.array([*map(_sought(pattern), map(str, distinct)), False])[codes]


def one_of(names: pd.Series, words: Iterable[str]) -> npt.NDArray[np.bool_]:
    """Return which names are one of the words. Each distinct name is looked up once."""
    codes, distinct = _distinct(names)
    return np.array([*map(frozenset(words).__contains__, distinct), False])[codes]


def _distinct(names: "pd.Series | npt.NDArray[np.object_]") -> tuple[npt.NDArray[np.integer], Iterable[Hashable]]:
    """Return the distinct names, and the place of each row's among them; -1 without a name."""
    if isinstance(names, pd.Series) and isinstance(names.dtype, pd.CategoricalDtype):
        return names.array.codes, names.array.categories
    codes, distinct = pd.factorize(names)
    return codes, distinct


@lru_cache(maxsize=1 << 9)
def _sought(pattern: re.Pattern[str]) -> Callable[[str], bool]:
    """Return a function of a name: whether it contains a match. It remembers names, because the ranks of a job, and
    the passes over one trace, use the same ones again; Python computes the hash of a pattern anew each time."""
    return lru_cache(maxsize=1 << 12)(lambda name: pattern.search(name, 0, _LONGEST_NAME) is not None)
