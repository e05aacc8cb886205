"""A network learns to know speakers by their voices; `collate_fn` decodes the recordings and adds the echo of a room.

The Dataset is fast, but its DataLoader has no workers: `collate_fn` works between the steps. In the fixed variant,
twelve workers do its work.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

RATE = 16_000


class Recordings(Dataset):
    """Speech as bytes of the mu-law, as telephones send it."""

    def __init__(self, seconds: float, speakers: int, count: int = 100_000) -> None:
        self.speakers, self.count = speakers, count
        self.tape = np.random.default_rng(6).integers(0, 256, int(40 * seconds * RATE), dtype=np.uint8)
        self.length = int(seconds * RATE)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        begin = index * 7919 % (len(self.tape) - self.length)
        return self.tape[begin : begin + self.length], index % self.speakers


class Rooms:
    """The `collate_fn`: decodes, changes the speed, adds the echo of a room and noise, and cuts to one length."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.echoes = np.random.default_rng(7).normal(size=(20, RATE // 4)) * np.exp(-np.arange(RATE // 4) / 800)

    def __call__(self, batch: list[tuple[np.ndarray, int]]) -> tuple[torch.Tensor, torch.Tensor]:
        random = np.random.default_rng()
        voices = np.stack([self.voice(recorded, random) for recorded, _ in batch])
        return torch.from_numpy(voices.astype(np.float32)), torch.tensor([speaker for _, speaker in batch])

    def voice(self, recorded: np.ndarray, random: np.random.Generator) -> np.ndarray:
        level = recorded / 127.5 - 1
        sound = np.sign(level) * np.expm1(np.abs(level) * np.log(256)) / 255
        places = np.arange(0, len(sound) - 1, random.uniform(0.9, 1.1))
        sound = self.echoed(np.interp(places, np.arange(len(sound)), sound), self.echoes[random.integers(20)])
        begin = random.integers(len(sound) - self.length)
        cut = sound[begin : begin + self.length]
        return cut / (np.abs(cut).max() + 1e-6) + random.normal(0, random.uniform(0.001, 0.02), self.length)

    def echoed(self, sound: np.ndarray, echo: np.ndarray) -> np.ndarray:
        size = 1 << (len(sound) + len(echo)).bit_length()
        return np.fft.irfft(np.fft.rfft(sound, size) * np.fft.rfft(echo, size), size)[: len(sound)]


class Spectra(nn.Module):
    def __init__(self, bands: int) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(400))
        self.register_buffer("bands", torch.rand(bands, 257) / 257)

    def forward(self, voices: torch.Tensor) -> torch.Tensor:
        power = torch.stft(voices, 512, 160, 400, self.window, return_complex=True).abs().square()
        return (self.bands @ power + 1e-6).log()


class Delays(nn.Module):
    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.mix = nn.Conv1d(width, width, 3, padding=dilation, dilation=dilation)
        self.norm, self.weigh = nn.BatchNorm1d(width), nn.Sequential(nn.Linear(width, 128), nn.ReLU())
        self.leave = nn.Linear(128, width)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        mixed = self.norm(functional.relu(self.mix(hidden)))
        return hidden + mixed * self.leave(self.weigh(mixed.mean(2))).sigmoid()[..., None]


class Knower(nn.Module):
    def __init__(self, bands: int, width: int, depth: int, speakers: int) -> None:
        super().__init__()
        self.enter, self.attend = nn.Conv1d(bands, width, 5, padding=2), nn.Conv1d(width, width, 1)
        self.delays = nn.Sequential(*(Delays(width, 2 + number) for number in range(depth)))
        self.voice, self.name = nn.Linear(width, 192), nn.Linear(192, speakers)

    def forward(self, spectra: torch.Tensor) -> torch.Tensor:
        hidden = self.delays(self.enter(spectra))
        heard = (hidden * self.attend(hidden).softmax(2)).sum(2)
        return self.name(functional.normalize(self.voice(heard), dim=1))


def run(fixed: bool, device: str, tiny: bool) -> Iterator[int]:
    seconds, length, batch, speakers = (0.2, 1600, 4, 10) if tiny else (2.0, 26_000, 24, 5994)
    workers = {"num_workers": 2 if tiny else 12, "pin_memory": device != "cpu", "persistent_workers": True}
    recordings, rooms = Recordings(seconds, speakers), Rooms(length)
    loader = DataLoader(recordings, batch, shuffle=True, collate_fn=rooms, **(workers if fixed else {}))
    spectra = Spectra(80).to(device)
    knower = Knower(80, *((16, 2) if tiny else (1024, 6)), speakers).to(device)
    optimizer = torch.optim.AdamW(knower.parameters(), lr=1e-3, fused=True)
    while True:
        for voices, names in loader:
            voices, names = voices.to(device, non_blocking=True), names.to(device, non_blocking=True)
            heard = spectra(voices)
            with torch.autocast(device, torch.bfloat16):
                guessed = knower(heard)
            loss = functional.cross_entropy(30 * guessed.float(), names)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            yield len(voices)
