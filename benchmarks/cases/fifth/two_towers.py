"""Pictures and captions are compared: two towers in float32, each on a stream of its own, keep the GPU busy.

In the fixed variant, the towers are in bfloat16, on the same two streams.
"""

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import torch
from transformers import CLIPTextConfig, CLIPTextModel, CLIPVisionConfig, CLIPVisionModel


def towers(tiny: bool) -> tuple[CLIPVisionModel, CLIPTextModel]:
    small = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    sees = small | {"image_size": 32} if tiny else {"patch_size": 16}
    reads = (
        small | {"vocab_size": 512}
        if tiny
        else {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12}
    )
    return CLIPVisionModel(CLIPVisionConfig(**sees)), CLIPTextModel(CLIPTextConfig(**reads))


class Streams:
    def __init__(self, device: str) -> None:
        self.streams = None if device == "cpu" else [torch.cuda.Stream(), torch.cuda.Stream()]

    def on(self, number: int) -> Any:
        return torch.cuda.stream(self.streams[number]) if self.streams else nullcontext()

    def part(self) -> None:
        for stream in self.streams or ():
            stream.wait_stream(torch.cuda.current_stream())

    def meet(self) -> None:
        for stream in self.streams or ():
            torch.cuda.current_stream().wait_stream(stream)


@torch.no_grad()
def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    batch, side, length = (2, 32, 8) if tiny else (24, 224, 77)
    kind = torch.bfloat16 if fixed else torch.float32
    sees, reads = (tower.to(device, kind).eval() for tower in towers(tiny))
    pictures = torch.rand(batch, 3, side, side, device=device, dtype=kind)
    captions = torch.randint(3, 500, (batch, length), device=device)
    streams = Streams(device)
    while True:
        streams.part()
        with streams.on(0):
            picture = sees(pixel_values=pictures).pooler_output
        with streams.on(1):
            caption = reads(input_ids=captions).last_hidden_state[:, 0]
        streams.meet()
        scores = picture[:, : caption.shape[1]] @ caption.T
        scores.argmax(1)
        yield batch
