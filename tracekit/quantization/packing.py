"""Weights in 4 or 8 bits, with a scale for each group of inputs. Importing this module needs torch."""

import torch


def pack(weight: torch.Tensor, bits: int, group: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the weights (outputs, inputs) in `bits` bits, as words of 32, and their scales (outputs, groups).

    A run of 4 words holds 128 / bits inputs. Word w has input 4 i + w, plus half of the range, in its i-th group of
    bits from below. Inputs are a multiple of the group.
    """
    half = 1 << (bits - 1)
    parts = weight.detach().float().reshape(len(weight), -1, group)
    scale = (parts.abs().amax(-1, keepdim=True) / (half - 1)).clamp(min=1e-10).to(weight.dtype)
    values = (parts / scale.float()).round().clamp(-half, half - 1).to(torch.int32) + half
    runs = values.reshape(len(weight), -1, 32 // bits, 4)
    words = torch.zeros_like(runs[:, :, 0])
    for i in range(32 // bits):
        words |= runs[:, :, i] << (bits * i)
    return words.reshape(len(weight), -1), scale.squeeze(-1).contiguous()


def unpack(packed: torch.Tensor, scale: torch.Tensor, bits: int) -> torch.Tensor:
    """Return the weights that `pack` packed, in the type of their scales."""
    runs = packed.reshape(len(packed), -1, 1, 4)
    places = torch.arange(0, 32, bits, device=packed.device, dtype=torch.int32).reshape(-1, 1)
    values = ((runs >> places) & ((1 << bits) - 1)) - (1 << (bits - 1))
    parts = values.to(scale.dtype).reshape(len(packed), scale.shape[1], -1)
    return (parts * scale.unsqueeze(-1)).reshape(len(packed), -1)
