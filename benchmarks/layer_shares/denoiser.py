"""A denoiser of latents: residual convolutions with group norms, and attention to a prompt."""

from torch import Tensor, nn
from torch.nn import functional
from torch.profiler import record_function as part


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.GroupNorm(32, width), nn.GroupNorm(32, width)
        self.conv_1, self.conv_2 = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
        self.time = nn.Linear(256, width)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        hidden = self.conv_1(functional.silu(self.norm_1(x))) + self.time(time)[..., None, None]
        return x + self.conv_2(functional.silu(self.norm_2(hidden)))


class PromptAttention(nn.Module):
    def __init__(self, width: int, prompt: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norm = heads, nn.LayerNorm(width)
        self.query, self.pair = nn.Linear(width, width, bias=False), nn.Linear(prompt, 2 * width, bias=False)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, prompt: Tensor) -> Tensor:
        batch, width, height, across = x.shape
        rows = x.flatten(2).transpose(1, 2)
        with part("projections"):
            query = self._heads(self.query(self.norm(rows)))
            key, value = (self._heads(each) for each in self.pair(prompt).chunk(2, dim=-1))
        with part("attention"):
            values = functional.scaled_dot_product_attention(query, key, value)
        rows = rows + self.out(values.transpose(1, 2).flatten(2))
        return rows.transpose(1, 2).reshape(batch, width, height, across)

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class Denoiser(nn.Module):
    def __init__(self, width: int, prompt: int) -> None:
        super().__init__()
        self.enter, self.leave = nn.Conv2d(4, width, 3, padding=1), nn.Conv2d(width, 4, 3, padding=1)
        self.outer, self.inner = self._pair(width, prompt), self._pair(2 * width, prompt)
        self.down, self.up = nn.Conv2d(width, 2 * width, 3, 2, 1), nn.Conv2d(2 * width, width, 3, padding=1)

    @staticmethod
    def _pair(width: int, prompt: int) -> nn.ModuleDict:
        return nn.ModuleDict({"residual": Residual(width), "attention": PromptAttention(width, prompt, width // 64)})

    def forward(self, latents: Tensor, time: Tensor, prompt: Tensor) -> Tensor:
        outer = self._through(self.outer, self.enter(latents), time, prompt)
        inner = self._through(self.inner, self.down(outer), time, prompt)
        return self.leave(outer + self.up(functional.interpolate(inner, scale_factor=2.0, mode="nearest")))

    @staticmethod
    def _through(pair: nn.ModuleDict, x: Tensor, time: Tensor, prompt: Tensor) -> Tensor:
        return pair["attention"](pair["residual"](x, time), prompt)
