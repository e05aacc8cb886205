"""Calls ops with the schemas that vLLM, SGLang and FBGEMM register, and records them with torch's profiler.

    python registered_ops.py TRACE.json

Their kernels do nothing here: only what a profiler records of a call is of interest. Results are left out of schemas.
"""

import sys

import torch
from torch.library import Library

TOKENS, HIDDEN, HEADS, HEAD, EXPERTS, CHOSEN = 64, 256, 4, 64, 8, 2
SAMPLES, TABLES, WIDTH, LOOKED_UP = 32, 4, 16, 1000
BF16, FP8, INT, BYTE = torch.bfloat16, torch.float8_e4m3fn, torch.int32, torch.uint8


def of(*shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype)


def scales(*shape: int) -> torch.Tensor:
    return of(*shape, dtype=torch.float32)


X, WIDE, WEIGHT = of(TOKENS, HIDDEN), of(TOKENS, 2 * HIDDEN), of(HIDDEN)
EIGHT, EIGHT_BIT_WEIGHT = of(TOKENS, HIDDEN, dtype=FP8), of(2 * HIDDEN, HIDDEN, dtype=FP8)
LATENT, ROTATED, CACHE = of(TOKENS, 512), of(TOKENS, 64), of(10, 16, 576)
SLOTS, IDS = of(TOKENS, dtype=torch.int64), of(TOKENS, CHOSEN, dtype=INT)
ROWS = of(TOKENS * CHOSEN, HIDDEN, dtype=FP8)
LENGTHS, VALUES = of(TABLES, SAMPLES, dtype=INT), of(LOOKED_UP, dtype=torch.int64)
OFFSETS = of(SAMPLES * TABLES + 1, dtype=torch.int64)
POOLED = [scales(SAMPLES, WIDTH), scales(SAMPLES, 2 * WIDTH)]
JAGGED, STARTS = scales(LOOKED_UP, WIDTH), of(SAMPLES + 1, dtype=torch.int64)

CALLS = {
    "_C::silu_and_mul_per_block_quant(Tensor out, Tensor x, Tensor s, int g, Tensor? ub, bool t)": (
        (of(TOKENS, HIDDEN, dtype=FP8), WIDE, scales(TOKENS, 2), 128, None, False)
    ),
    "_C::swigluoai_and_mul(Tensor out, Tensor x, float alpha, float limit)": (X, WIDE, 1.702, 7.0),
    "_C::persistent_topk(Tensor x, Tensor n, Tensor out, Tensor space, int k, int most)": (
        (scales(TOKENS, 512), of(TOKENS, dtype=INT), of(TOKENS, 8, dtype=INT), of(100, dtype=BYTE), 8, 512)
    ),
    "_C::cutlass_scaled_fp4_mm(Tensor out, Tensor a, Tensor b, Tensor sa, Tensor sb, Tensor alpha)": (
        (
            WIDE,
            of(TOKENS, HIDDEN // 2, dtype=BYTE),
            of(2 * HIDDEN, HIDDEN // 2, dtype=BYTE),
            of(TOKENS, 16, dtype=FP8),
            of(2 * HIDDEN, 16, dtype=FP8),
            scales(1),
        )
    ),
    "_C::ggml_mul_mat_a8(Tensor W, Tensor X, int type, SymInt row)": (
        (of(2 * HIDDEN, HIDDEN * 18 // 32, dtype=BYTE), X, 2, 2 * HIDDEN)
    ),
    "_C::cutlass_moe_mm(Tensor out, Tensor a, Tensor b, Tensor sa, Tensor sb, Tensor offsets)": (
        (
            of(TOKENS * CHOSEN, 2 * HIDDEN),
            ROWS,
            of(EXPERTS, HIDDEN, 2 * HIDDEN, dtype=FP8),
            scales(TOKENS * CHOSEN, 1),
            scales(EXPERTS, 1),
            of(EXPERTS, dtype=INT),
        )
    ),
    "_C::causal_conv1d_update(Tensor x, Tensor state, Tensor weight, Tensor? bias, bool act)": (
        (X, of(10, HIDDEN, 4), of(HIDDEN, 4), None, True)
    ),
    "_C_cache_ops::concat_and_cache_mla_rope_fused(Tensor p, Tensor q, Tensor k, Tensor c, Tensor t, bool n, Tensor s,"
    " Tensor cache, str kind, Tensor scale)": (
        (SLOTS, of(TOKENS, HEADS, 64), ROTATED, LATENT, of(4096, 64), True, SLOTS, CACHE, "auto", scales(1))
    ),
    "_C_cache_ops::cp_gather_cache(Tensor c, Tensor d, Tensor t, Tensor s, int n, Tensor? starts)": (
        (CACHE, of(TOKENS, 576), of(4, 8, dtype=INT), of(5, dtype=INT), 4, None)
    ),
    "_moe_C::moe_wna16_marlin_gemm(Tensor a, Tensor? c, Tensor q, Tensor? bias, Tensor s, Tensor? sa, Tensor? g,"
    " Tensor? z, Tensor? i, Tensor? p, Tensor space, Tensor ids, Tensor experts, Tensor n, Tensor w, int block, int k,"
    " bool mul, int type, int m, int size_n, int size_k, bool full)": (
        (
            X,
            None,
            of(EXPERTS, HIDDEN // 16, 2 * HIDDEN * 2, dtype=INT),
            None,
            of(EXPERTS, 2, 2 * HIDDEN),
            None,
            None,
            None,
            None,
            None,
            of(100, dtype=INT),
            of(256, dtype=INT),
            of(8, dtype=INT),
            of(1, dtype=INT),
            scales(TOKENS, CHOSEN),
            16,
            CHOSEN,
            False,
            1125899906909960,
            TOKENS,
            2 * HIDDEN,
            HIDDEN,
            True,
        )
    ),
    "sgl_kernel::fp8_scaled_mm(Tensor a, Tensor b, Tensor sa, Tensor sb, ScalarType out, Tensor? bias)": (
        (EIGHT, EIGHT_BIT_WEIGHT.t(), scales(TOKENS, 1), scales(2 * HIDDEN, 1), BF16, None)
    ),
    "sgl_kernel::topk_softmax(Tensor w, Tensor i, Tensor gating, bool renormalize)": (
        (scales(TOKENS, CHOSEN), IDS, scales(TOKENS, EXPERTS), True)
    ),
    "sgl_kernel::apply_rope_pos_ids_cos_sin_cache(Tensor q, Tensor k, Tensor qr, Tensor kr, Tensor t, Tensor p)": (
        (X, X, X, X, scales(4096, HEAD), SLOTS)
    ),
    "sgl_kernel::store_kv_cache(Tensor kc, Tensor vc, Tensor loc, Tensor k, Tensor v)": (
        (of(4096, HIDDEN), of(4096, HIDDEN), SLOTS, X, X)
    ),
    "vllm::w8a8_block_fp8_matmul(Tensor a, Tensor b, Tensor sa, Tensor sb, int[] block, ScalarType out)": (
        (EIGHT, EIGHT_BIT_WEIGHT, scales(TOKENS, 2), scales(4, 2), [128, 128], BF16)
    ),
    "vllm::fp8_gemm_nt_op(Tensor a, Tensor sa, Tensor b, Tensor sb, Tensor out, bool e8)": (
        (EIGHT, scales(TOKENS, 2), EIGHT_BIT_WEIGHT, scales(4, 2), WIDE, False)
    ),
    "vllm::gdn_attention_core(Tensor qkv, Tensor b, Tensor a, Tensor out, str layer)": (WIDE, X, X, X, "layers.0"),
    "fbgemm::permute_2D_sparse_data_input1D(Tensor p, Tensor l, Tensor v, int stride, Tensor? w)": (
        (of(TABLES, dtype=INT), of(TABLES * SAMPLES, dtype=INT), VALUES, SAMPLES, None)
    ),
    "fbgemm::permute_multi_embedding(Tensor[] e, Tensor p, Tensor i, Tensor o, SymInt[] lengths)": (
        (POOLED, of(3, 6, dtype=INT), of(2, dtype=INT), of(1, dtype=INT), [3 * WIDTH])
    ),
    "fbgemm::int_nbit_split_embedding_codegen_lookup_function(Tensor d, Tensor u, Tensor p, Tensor o, Tensor t,"
    " Tensor D, int total, int m2, int m4, int m8, int m16, int m32, Tensor i, Tensor s, int pooling, Tensor? w)": (
        (
            of(1000, dtype=BYTE),
            of(0, dtype=BYTE),
            of(TABLES, dtype=INT),
            of(TABLES, dtype=torch.int64),
            of(TABLES, dtype=BYTE),
            of(TABLES + 1, dtype=INT),
            TABLES * WIDTH,
            0,
            WIDTH,
            0,
            0,
            0,
            VALUES.int(),
            OFFSETS.int(),
            0,
            None,
        )
    ),
    "fbgemm::jagged_dense_bmm(Tensor x, Tensor o, Tensor y, int most)": (JAGGED, STARTS, scales(SAMPLES, WIDTH, 8), 50),
    "fbgemm::group_index_select_dim0(Tensor[] x, Tensor[] i)": (POOLED, [VALUES, VALUES]),
    "fbgemm::FloatToFused8BitRowwiseQuantized(Tensor x)": (scales(SAMPLES, WIDTH),),
    "fbgemm::bounds_check_indices_v2(Tensor r, Tensor i, Tensor o, int mode)": (of(TABLES), VALUES, OFFSETS, 1),
}


def main() -> None:
    libraries: dict[str, Library] = {}
    for schema in CALLS:
        space, _, rest = schema.partition("::")
        library = libraries.setdefault(space, Library(space, "FRAGMENT"))
        library.define(f"{rest} -> ()")
        library.impl(rest.partition("(")[0], lambda *_: None, "CPU")
    with torch.profiler.profile(record_shapes=True) as profiler:
        for schema, inputs in CALLS.items():
            space, _, rest = schema.partition("::")
            getattr(getattr(torch.ops, space), rest.partition("(")[0])(*inputs)
    profiler.export_chrome_trace(sys.argv[1])


if __name__ == "__main__":
    main()
