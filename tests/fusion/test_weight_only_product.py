"""The products of the tensor cores, which Triton's interpreter does not know, are replaced by the matrices they stand
for (PTX, "Matrix fragments for mma.m16n8k16")."""

import pytest

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from tracekit.fuse import proof

proof.interpret_without_gpu()
from tracekit.fuse.kernels import weight_only_product as kernel

if torch.cuda.is_available():
    pytest.skip("the GPU's tensor cores are proved by the template's own proof", allow_module_level=True)

LANE = torch.arange(32)
G, C = LANE // 4, LANE % 4


def numbers(pairs, half, threads):
    """Return the two numbers in each integer, for each thread."""
    held = np.asarray(pairs.handle.data if hasattr(pairs, "handle") else getattr(pairs, "value", pairs))
    bits = torch.from_numpy(np.broadcast_to(held, (threads, *held.shape[1:])).astype(np.uint32).view(np.int32).copy())
    return bits.unsqueeze(-1).view(torch.float16 if half else torch.bfloat16).float()


def times(x, gain, half):
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    half, threads = getattr(half, "value", half), len(x.handle.data)
    each, other = numbers(x, half, threads), numbers(gain, half, threads)
    both = (each * (other if other.dim() == 3 else other[:, None])).to(torch.float16 if half else torch.bfloat16)
    bits = both.contiguous().view(torch.int32).squeeze(-1).numpy()
    return tl.tensor(TensorHandle(bits, tl.int32), x.type)


def product(sums, weights, x, half):
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    half, threads = getattr(half, "value", half), len(sums[0].handle.data)
    weights = [numbers(each, half, threads) for each in weights]
    x = [numbers(each, half, threads) for each in x]
    out = torch.stack([torch.as_tensor(each.handle.data.copy()) for each in sums])
    for warp in range(0, threads, 32):
        a, b, of = torch.zeros(16, 16), torch.zeros(16, 8), slice(warp, warp + 32)
        for i, each in enumerate(weights):
            for h in range(2):
                a[G + 8 * (i % 2), 2 * C + 8 * (i // 2) + h] = each[of, h]
        for i, each in enumerate(x):
            for h in range(2):
                b[2 * C + 8 * i + h, G] = each[of, h]
        for i in range(4):
            out[i, of] += (a @ b)[G + 8 * (i // 2), 2 * C + i % 2]
    return tuple(
        tl.tensor(TensorHandle(each.numpy(), tl.float32), old.type) for each, old in zip(out, sums, strict=True)
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(
    ("group", "rows", "columns", "inputs", "launch"),
    [
        (64, 1, 32, 512, (16, 2, 2)),
        (32, 3, 17, 640, (32, 2, 2)),
        (640, 8, 40, 640, (16, 9, 4)),
        (96, 2, 16, 384, (16, 1, 1)),
    ],
)
def test_tensor_cores_give_the_product(monkeypatch, dtype, bits, group, rows, columns, inputs, launch):
    monkeypatch.setattr(kernel, "_sums", product)
    monkeypatch.setattr(kernel, "_times", times)
    monkeypatch.setattr(kernel, "_has_tensor_cores", lambda _: True)
    monkeypatch.setattr(kernel, "_starts_early", lambda _: False)
    monkeypatch.setattr(kernel, "CONFIG", dict(zip(("ROWS", "DEEP", "num_warps"), launch, strict=True)))
    x, packed, scale, _, _ = kernel.example(dtype, "cpu", rows, columns, inputs, bits, group)
    bias = torch.randn(columns, dtype=dtype)
    exact = kernel.reference(x.float(), packed, scale.float(), bias.float(), bits)
    close = {"rtol": 2e-2, "atol": 2e-2}
    torch.testing.assert_close(kernel.fused(x, packed, scale, bias, bits).float(), exact, **close)
    if columns % 2:
        return
    gain, residual = torch.rand(inputs, dtype=dtype), torch.randn(rows, columns, dtype=dtype)
    for gated, added in ((True, None), (False, residual)):
        more = {"gain": gain, "epsilon": 1e-5, "gated": gated, "residual": added}
        got = kernel.fused(x * 3, packed, scale, None, bits, **more)
        torch.testing.assert_close(got, kernel.reference(x * 3, packed, scale, None, bits, **more), **close)
