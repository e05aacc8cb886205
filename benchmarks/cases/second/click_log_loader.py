"""A recommender is trained on a log of clicks: compressed rows, which a Dataset unpacks one at a time.

Categories go through embedding bags, what a user has clicked before through a small transformer.
"""

import zlib
from collections.abc import Iterator

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

NUMBERS, CATEGORIES, ROW_IDS = 13, 26, 100_000


class ClickLog(Dataset):
    def __init__(self, rows: int, history: int, repeated: int = 400_000) -> None:
        random = np.random.default_rng(5)
        self.history, self.repeated = history, repeated
        self.rows = [zlib.compress(self.packed(random)) for _ in range(rows)]

    def packed(self, random: np.random.Generator) -> bytes:
        numbers = random.lognormal(1.0, 2.0, NUMBERS).astype(np.float32)
        ids = (random.pareto(1.2, CATEGORIES + 2 * self.history) * 50).astype(np.int64)
        return numbers.tobytes() + ids.tobytes()

    def __len__(self) -> int:
        return self.repeated

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        raw = zlib.decompress(self.rows[index % len(self.rows)])
        numbers = np.frombuffer(raw, np.float32, NUMBERS)
        ids = np.frombuffer(raw, np.int64, offset=4 * NUMBERS)
        categories, clicked, seconds = np.split(ids, [CATEGORIES, CATEGORIES + self.history])
        ages = np.sort(seconds)[::-1]
        decay = np.exp(-ages / (1.0 + ages.mean()))
        return {
            "numbers": np.log1p(np.clip(numbers, 0, 1e6)),
            "categories": self.hashed(categories),
            "clicked": self.hashed(clicked),
            "decay": (decay / decay.sum()).astype(np.float32),
            "label": np.float32(categories[0] % 2),
        }

    def hashed(self, ids: np.ndarray) -> np.ndarray:
        return (ids * 2_654_435_761 ^ ids >> 7) % ROW_IDS


class Recommender(nn.Module):
    def __init__(self, width: int, depth: int, heads: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(ROW_IDS // 10, width, mode="sum") for _ in range(CATEGORIES))
        self.items = nn.Embedding(ROW_IDS, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.reader = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.bottom = nn.Sequential(nn.Linear(NUMBERS, width), nn.ReLU(), nn.Linear(width, width))
        features = CATEGORIES + 2
        self.top = nn.Sequential(nn.Linear(width + features * features, 1024), nn.ReLU(), nn.Linear(1024, 1))

    def forward(self, row: dict[str, torch.Tensor]) -> torch.Tensor:
        bags = [
            table(ids[:, None] % (ROW_IDS // 10))
            for table, ids in zip(self.tables, row["categories"].unbind(1), strict=True)
        ]
        read = self.reader(self.items(row["clicked"]))
        dense = self.bottom(row["numbers"])
        features = torch.stack([dense, (read * row["decay"][..., None]).sum(1), *bags], 1)
        crossed = features @ features.transpose(1, 2)
        return self.top(torch.cat([dense, crossed.flatten(1)], 1))[:, 0]


def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    rows, history, batch = (64, 8, 8) if tiny else (4096, 64, 1024)
    workers = {"num_workers": 2 if tiny else 8, "pin_memory": device != "cpu", "persistent_workers": True}
    loader = DataLoader(ClickLog(rows, history), batch, shuffle=True, drop_last=True, **(workers if fixed else {}))
    model = Recommender(*((16, 1, 2) if tiny else (512, 8, 8))).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    for row in loader:
        row = {name: values.to(device, non_blocking=True) for name, values in row.items()}
        with torch.autocast(device, torch.bfloat16):
            clicks = model(row)
        loss = nn.functional.binary_cross_entropy_with_logits(clicks.float(), row["label"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield batch
