"""Sounds are embedded for a search engine by CLAP, whose feature extractor makes spectrograms in numpy, frame by frame.

It is called with a batch of recordings at each step, before the model is run. In the fixed variant, the same
spectrograms are made by `torch.stft` on the GPU, with the extractor's own filters.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch.nn import functional
from transformers import ClapAudioConfig, ClapAudioModelWithProjection, ClapFeatureExtractor


def recordings(count: int, rate: int, longest_s: float) -> list[np.ndarray]:
    """Return chirps in noise, none of which is longer than what the model hears."""
    numbers, made = np.random.default_rng(3), []
    for _ in range(count):
        time = np.arange(int(rate * longest_s * numbers.uniform(0.7, 1))) / rate
        chirp = np.sin(2 * np.pi * (numbers.uniform(100, 900) + numbers.uniform(0, 200) * time) * time)
        made.append((0.3 * chirp + 0.05 * numbers.standard_normal(len(time))).astype(np.float32))
    return made


class SpectrogramsOnTheGpu:
    """Does what the extractor does to recordings that are long enough not to be repeated."""

    def __init__(self, extractor: ClapFeatureExtractor, device: str) -> None:
        self.extractor, self.device = extractor, device
        self.filters = torch.from_numpy(extractor.mel_filters_slaney).to(device, torch.float32)
        self.window = torch.hann_window(extractor.fft_window_size, device=device)

    def padded(self, sounds: list[np.ndarray]) -> torch.Tensor:
        rows = torch.zeros(len(sounds), self.extractor.nb_max_samples)
        for row, sound in zip(rows, sounds, strict=True):
            row[: len(sound)] = torch.from_numpy(sound)
        return rows.to(self.device)

    def __call__(self, sounds: list[np.ndarray]) -> torch.Tensor:
        size, hop = self.extractor.fft_window_size, self.extractor.hop_length
        waves = torch.stft(self.padded(sounds), size, hop, window=self.window, return_complex=True)
        mel = waves.abs().square().transpose(1, 2) @ self.filters
        return 10 * mel.clamp(min=1e-10).log10()[:, None]


class Index:
    """The embeddings of the sounds so far; the oldest are overwritten."""

    def __init__(self, room: int, width: int, device: str) -> None:
        self.rows, self.next = torch.zeros(room, width, device=device), 0

    def add(self, embedded: torch.Tensor) -> None:
        begin = self.next if self.next + len(embedded) <= len(self.rows) else 0
        self.rows[begin : begin + len(embedded)] = functional.normalize(embedded.float(), dim=-1)
        self.next = begin + len(embedded)


def config(tiny: bool) -> ClapAudioConfig:
    if not tiny:
        return ClapAudioConfig()
    return ClapAudioConfig(
        hidden_size=32,
        patch_embeds_hidden_size=16,
        depths=[1, 1],
        num_attention_heads=[2, 2],
        num_hidden_layers=2,
        projection_dim=16,
        spec_size=64,
        num_mel_bins=16,
        window_size=4,
    )


def extractor_of(tiny: bool) -> ClapFeatureExtractor:
    size = {"feature_size": 16, "sampling_rate": 8000, "hop_length": 240, "max_length_s": 1, "frequency_max": 4000}
    return ClapFeatureExtractor(truncation="rand_trunc", padding="repeatpad", **(size if tiny else {}))


@torch.no_grad()
def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    batch, shelf = (2, 4) if tiny else (4, 48)
    extractor = extractor_of(tiny)
    rate, sampled = extractor.sampling_rate, extractor.nb_max_samples
    model = ClapAudioModelWithProjection(config(tiny)).to(device).eval()
    sounds = recordings(shelf, rate, sampled / rate)
    on_gpu, index = SpectrogramsOnTheGpu(extractor, device), Index(1024, model.config.projection_dim, device)
    while True:
        for begin in range(0, shelf, batch):
            some = sounds[begin : begin + batch]
            if fixed:
                features = on_gpu(some)
            else:
                features = extractor(some, sampling_rate=rate, return_tensors="pt")["input_features"]
                features = features.to(device, torch.float32)
            with torch.autocast(device, torch.bfloat16):
                embedded = model(input_features=features).audio_embeds
            index.add(embedded)
            yield batch
