"""Weights in 4 or 8 bits, with a scale for each group of inputs. Importing this module needs torch."""

import torch


def pack(weight: torch.Tensor, bits: int, group: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the weights (outputs, inputs) in `bits` bits, and their scales (outputs, groups).

    With 4 bits, a byte holds element j of a row in its low half and element inputs / 2 + j in its high half, each plus
    8. Inputs are a multiple of twice the group.
    """
    largest = 7 if bits == 4 else 127
    parts = weight.detach().float().reshape(len(weight), -1, group)
    scale = (parts.abs().amax(-1, keepdim=True) / largest).clamp(min=1e-10).to(weight.dtype)
    rounded = (parts / scale.float()).round().clamp(-largest - 1, largest).to(torch.int8).reshape(weight.shape)
    if bits == 4:
        low, high = (rounded + 8).to(torch.uint8).chunk(2, dim=1)
        rounded = low | (high << 4)
    return rounded.contiguous(), scale.squeeze(-1).contiguous()


def unpack(packed: torch.Tensor, scale: torch.Tensor, bits: int) -> torch.Tensor:
    """Return the weights that `pack` packed, in the type of their scales."""
    values = packed
    if bits == 4:
        values = torch.cat([packed & 15, packed >> 4], dim=1).to(torch.int8) - 8
    parts = values.to(scale.dtype).reshape(len(values), scale.shape[1], -1)
    return (parts * scale.unsqueeze(-1)).reshape(values.shape)
