"""Ops that CUDA calls before the kernel of another op are recorded as ops of their own."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import tracekit
from tracekit.capture.fake.cuda_ops import workspace


class Calls(nn.Module):
    def __init__(self, run: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.run = run

    def forward(self, x: Tensor) -> Tensor:
        return self.run(x)


CONVOLUTION, NORM = nn.Conv1d(8, 8, 3), nn.LayerNorm(8)


def test_a_convolution_in_half_precision_holds_its_tensors_with_channels_last() -> None:
    weight, result = torch.empty(8, 4, 3, 3, dtype=torch.float16), torch.empty(1, 8, 8, 8, dtype=torch.float16)
    source = torch.empty(1, 4, 8, 8, dtype=torch.float16)
    convolution = torch.ops.aten.convolution.default
    held = workspace(convolution, (source, weight), [result])
    assert [each.shape for each in held] == [source.shape, weight.shape, result.shape]
    assert not workspace(convolution, (source.float(), weight.float()), [result])
    assert not workspace(convolution, (source.to(memory_format=torch.channels_last), weight), [result])
    assert not workspace(convolution, (source, weight[:, :, :1, :1]), [result])


@pytest.mark.parametrize(
    ("run", "shape", "kernels"),
    [
        (lambda x: x.masked_fill(x > 0, 0.0), (4, 8), ["gt", "copy_", "masked_fill_"]),
        (lambda x: functional.pad(x, (1, 1)), (4, 8), ["zero_", "constant_pad_nd"]),
        (lambda x: x.transpose(0, 1).clone(memory_format=torch.contiguous_format), (4, 8), ["copy_"]),
        (NORM, (4, 8), ["native_layer_norm"]),
        (lambda x: NORM(x.transpose(0, 1)), (8, 4), ["copy_", "native_layer_norm"]),
        (CONVOLUTION, (2, 8, 16), ["convolution"]),
        (lambda x: CONVOLUTION(x.transpose(1, 2)), (2, 16, 8), ["copy_", "convolution"]),
    ],
)
def test_a_call_has_the_kernels_of_cuda(
    run: Callable[[Tensor], Tensor], shape: tuple[int, ...], kernels: list[str], tmp_path: Path
) -> None:
    analysis = tracekit.profile(
        Calls(run), torch.randn(shape), gpu="h100", device="model", steps=1, output=tmp_path / "run"
    )
    names = analysis.work.sort_values("start_ns")["op_name"].str.removeprefix("aten::")
    assert list(names) == kernels
