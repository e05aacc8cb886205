"""VideoMAE is fine-tuned to name what is done in a video, by a small trainer whose precision nobody has set.

It trains in float32, and TF32 is off as PyTorch has it. In the fixed variant, its precision is "bf16-mixed".
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from transformers import VideoMAEConfig, VideoMAEForVideoClassification


@dataclass
class Trainer:
    model: torch.nn.Module
    device: str
    precision: str = "32"
    rate: float = 5e-5
    optimizer: torch.optim.Optimizer = field(init=False)

    def __post_init__(self) -> None:
        self.model.to(self.device).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=self.rate, fused=True)

    def context(self) -> contextlib.AbstractContextManager:
        mixed = self.precision == "bf16-mixed"
        return torch.autocast(self.device, torch.bfloat16) if mixed else contextlib.nullcontext()

    def step(self, batch: dict[str, torch.Tensor]) -> None:
        with self.context():
            loss = self.model(**batch).loss
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def config(tiny: bool) -> VideoMAEConfig:
    size = (
        {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 32}
        if tiny
        else {"hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 8, "num_attention_heads": 8}
    )
    return VideoMAEConfig(num_frames=4 if tiny else 16, num_labels=174, **size)


def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    videos, frames, side = (1, 4, 32) if tiny else (8, 16, 224)
    model = VideoMAEForVideoClassification(config(tiny))
    trainer = Trainer(model, device, "bf16-mixed" if fixed else "32")
    batch = {
        "pixel_values": torch.rand(videos, frames, 3, side, side, device=device),
        "labels": torch.randint(174, (videos,), device=device),
    }
    while True:
        trainer.step(batch)
        yield videos
