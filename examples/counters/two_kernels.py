"""A sum and a product of matrices in Triton, each launched once, under Nsight Compute:

    ncu --clock-control none -k "regex:add_kernel|matmul_kernel" \\
        --section SpeedOfLight --section LaunchStats --section Occupancy --metrics METRICS \\
        -o two_kernels python two_kernels.py
    ncu --import two_kernels.ncu-rep --csv --page raw > two_kernels.csv

METRICS: dram__bytes_read.sum,dram__bytes_write.sum,lts__t_bytes.sum,gpu__time_duration.sum,
smsp__sass_thread_inst_executed_op_fadd_pred_on.sum,sm__ops_path_tensor_src_bf16_dst_fp32.sum
"""

import torch
import triton
import triton.language as tl

_ELEMENTS, _BLOCK = 1 << 22, 1024
_SIZE, _TILE, _DEPTH = 1024, 64, 32


@triton.jit
def add_kernel(x, y, out, count, block: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    inside = i < count
    tl.store(out + i, tl.load(x + i, mask=inside) + tl.load(y + i, mask=inside), mask=inside)


@triton.jit
def matmul_kernel(a, b, c, size, tile: tl.constexpr, depth: tl.constexpr):
    row = tl.program_id(0) * tile + tl.arange(0, tile)
    column = tl.program_id(1) * tile + tl.arange(0, tile)
    k = tl.arange(0, depth)
    total = tl.zeros((tile, tile), dtype=tl.float32)
    for start in range(0, size, depth):
        left = tl.load(a + row[:, None] * size + (start + k)[None, :])
        total += tl.dot(left, tl.load(b + (start + k)[:, None] * size + column[None, :]))
    tl.store(c + row[:, None] * size + column[None, :], total.to(tl.bfloat16))


def main() -> None:
    x, y, out = (torch.empty(_ELEMENTS, device="cuda") for _ in range(3))
    a, b, c = (torch.empty(_SIZE, _SIZE, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    add_kernel[(_ELEMENTS // _BLOCK,)](x, y, out, _ELEMENTS, block=_BLOCK)
    matmul_kernel[(_SIZE // _TILE, _SIZE // _TILE)](a, b, c, _SIZE, tile=_TILE, depth=_DEPTH)
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
