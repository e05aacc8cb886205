"""A Whisper encoder tells the language of recordings; their log-mel spectrograms are made by numpy, clip by clip."""

from collections.abc import Iterator

import numpy as np
import torch
from transformers import WhisperConfig
from transformers.models.whisper.modeling_whisper import WhisperEncoder

RATE, WINDOW, HOP = 16_000, 400, 160


def mel_filters(bands: int) -> np.ndarray:
    """Triangles, equally wide in mel."""
    mels = np.linspace(0, 2595 * np.log10(1 + RATE / 2 / 700), bands + 2)
    edges = 700 * (10 ** (mels / 2595) - 1)
    frequencies = np.linspace(0, RATE / 2, WINDOW // 2 + 1)[:, None]
    rising = (frequencies - edges[:-2]) / np.diff(edges)[:-1]
    falling = (edges[2:] - frequencies) / np.diff(edges)[1:]
    return np.maximum(0, np.minimum(rising, falling)).astype(np.float32)


class NumpyFeatures:
    def __init__(self, bands: int, device: str) -> None:
        self.filters, self.device = mel_filters(bands), device
        self.window = np.hanning(WINDOW + 1)[:-1].astype(np.float32)

    def __call__(self, clips: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.stack([self.log_mel(clip) for clip in clips])).to(self.device)

    def log_mel(self, clip: np.ndarray) -> np.ndarray:
        padded = np.pad(clip, WINDOW // 2, mode="reflect")
        frames = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::HOP][:-1]
        power = np.abs(np.fft.rfft(frames * self.window, axis=-1)) ** 2
        bands = np.log10(np.maximum(power.astype(np.float32) @ self.filters, 1e-10))
        return ((np.maximum(bands, bands.max() - 8.0) + 4.0) / 4.0).T


class TorchFeatures:
    def __init__(self, bands: int, device: str) -> None:
        self.filters, self.device = torch.from_numpy(mel_filters(bands)).to(device), device
        self.window = torch.hann_window(WINDOW, device=device)

    def __call__(self, clips: np.ndarray) -> torch.Tensor:
        sound = torch.from_numpy(clips).to(self.device)
        waves = torch.stft(sound, WINDOW, HOP, window=self.window, return_complex=True)[..., :-1]
        bands = (self.filters.T @ waves.abs().square()).clamp(min=1e-10).log10()
        return (torch.maximum(bands, bands.amax((1, 2), keepdim=True) - 8.0) + 4.0) / 4.0


@torch.no_grad()
def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    batch, seconds, bands = (2, 2, 80) if tiny else (8, 30, 128)
    size = (32, 2, 2, 64) if tiny else (1280, 32, 20, 5120)
    names = ("d_model", "encoder_layers", "encoder_attention_heads", "encoder_ffn_dim")
    config = WhisperConfig(num_mel_bins=bands, max_source_positions=50 * seconds, **dict(zip(names, size, strict=True)))
    with torch.device(device):
        encoder = WhisperEncoder(config).to(torch.bfloat16).eval()
        languages = torch.nn.Linear(size[0], 99).to(torch.bfloat16)
    features = (TorchFeatures if fixed else NumpyFeatures)(bands, device)
    clips = np.random.default_rng(3).normal(0, 0.1, (batch, RATE * seconds)).astype(np.float32)
    answers = []
    while True:
        heard = encoder(features(clips).to(torch.bfloat16)).last_hidden_state
        odds = languages(heard.mean(1)).float().softmax(-1)
        answers.append(odds.cpu().numpy().argmax(-1))
        yield batch
