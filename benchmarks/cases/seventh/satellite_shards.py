"""Crops are told apart in satellite pictures of ten bands, which an IterableDataset reads from tar files.

Each tile is decompressed and stretched between percentiles, as remote sensing does. The DataLoader has no workers.
In the fixed variant, it has eight, each with shards of its own.
"""

import io
import random
import tarfile
import zlib
from collections.abc import Iterator

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from transformers import SegformerConfig, SegformerForSemanticSegmentation

BANDS, CROPS = 10, 12


def shard(tiles: int, side: int, seed: int) -> bytes:
    """Return a tar file of compressed tiles and masks."""
    made, numbers = io.BytesIO(), np.random.default_rng(seed)
    with tarfile.open(fileobj=made, mode="w") as tar:
        for tile in range(tiles):
            bands = numbers.gamma(4.0, 300.0, (BANDS, side, side)).astype(np.uint16)
            mask = np.kron(numbers.integers(CROPS, size=(side // 8, side // 8)), np.ones((8, 8))).astype(np.uint8)
            for name, values in (("bands", bands), ("mask", mask)):
                packed = zlib.compress(values.tobytes(), 1)
                member = tarfile.TarInfo(f"{tile:05}.{name}")
                member.size = len(packed)
                tar.addfile(member, io.BytesIO(packed))
    return made.getvalue()


class Shards(IterableDataset):
    def __init__(self, shards: list[bytes], side: int) -> None:
        self.shards, self.side = shards, side

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        worker = get_worker_info()
        mine = self.shards[worker.id :: worker.num_workers] if worker else list(self.shards)
        while True:
            random.shuffle(mine)
            for each in mine:
                yield from self.tiles(each)

    def tiles(self, each: bytes) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        with tarfile.open(fileobj=io.BytesIO(each)) as tar:
            members = iter(tar)
            for bands, mask in zip(members, members, strict=True):
                raw, truth = (zlib.decompress(tar.extractfile(member).read()) for member in (bands, mask))
                yield self.tile(np.frombuffer(raw, np.uint16), np.frombuffer(truth, np.uint8))

    def tile(self, raw: np.ndarray, truth: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        bands = raw.reshape(BANDS, self.side, self.side).astype(np.float32)
        low, high = np.percentile(bands, [2, 98], axis=(1, 2), keepdims=True)
        bands = np.clip((bands - low) / (high - low), 0, 1).astype(np.float32)
        turns = random.randrange(4)
        turned = np.rot90(bands, turns, (1, 2)), np.rot90(truth.reshape(self.side, self.side), turns)
        return torch.from_numpy(turned[0].copy()), torch.from_numpy(turned[1].astype(np.int64))


def model(tiny: bool) -> SegformerForSemanticSegmentation:
    size = (
        {"hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 1, 1], "decoder_hidden_size": 16}
        if tiny
        else {"hidden_sizes": [64, 128, 320, 512], "depths": [2, 2, 2, 2], "decoder_hidden_size": 256}
    )
    return SegformerForSemanticSegmentation(SegformerConfig(num_channels=BANDS, num_labels=CROPS, **size))


def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    side, batch, tiles, workers = (32, 2, 4, 2) if tiny else (128, 24, 16, 8)
    kinds = [shard(tiles, side, seed) for seed in range(2)]
    options = {"num_workers": workers, "pin_memory": device != "cpu", "persistent_workers": True}
    loader = DataLoader(Shards(kinds * 12, side), batch, **(options if fixed else {}))
    segmenter = model(tiny).to(device).train()
    optimizer = torch.optim.AdamW(segmenter.parameters(), lr=6e-5, fused=True)
    for bands, truth in loader:
        bands, truth = bands.to(device, non_blocking=True), truth.to(device, non_blocking=True)
        with torch.autocast(device, torch.bfloat16):
            loss = segmenter(pixel_values=bands, labels=truth).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield len(bands)
