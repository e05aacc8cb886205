"""GPT-2 written from scratch, with the parts of its attention and of its MLP marked.

    tracekit run --gpu t4 examples/gpt2_from_scratch.py --train   # modelled, where there is no GPU
    tracekit analyze runs/gpt2_from_scratch --table layer_parts

Attention marks eight parts, the MLP three. Each is a layer of the profile, with its forward and its backward time.
"""

import argparse
import math

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.profiler import record_function as part

device = "cuda" if torch.cuda.is_available() else "cpu"


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.register_buffer("mask", torch.ones(length, length, dtype=torch.bool).triu(1))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        with part("qkv projection"):
            qkv = self.qkv(x)
        with part("split heads"):
            query, key, value = (
                each.view(batch, length, self.heads, -1).transpose(1, 2).contiguous() for each in qkv.split(width, 2)
            )
        with part("scores"):
            scores = query @ key.transpose(-2, -1)
        with part("scale and mask"):
            scores = (scores / math.sqrt(key.shape[-1])).masked_fill(self.mask[:length, :length], -math.inf)
        with part("softmax"):
            weights = functional.softmax(scores, dim=-1)
        with part("weighted values"):
            values = weights @ value
        with part("merge heads"):
            merged = values.transpose(1, 2).reshape(batch, length, width)
        with part("output projection"):
            return self.proj(merged)


class MLP(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        with part("up"):
            x = self.up(x)
        with part("gelu"):
            x = functional.gelu(x, approximate="tanh")
        with part("down"):
            return self.down(x)


class Block(nn.Module):
    def __init__(self, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.mlp = Attention(width, heads, length), MLP(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm_1(x))
        return x + self.mlp(self.norm_2(x))


class GPT2(nn.Module):
    def __init__(self, layers: int, width: int, heads: int, length: int, vocabulary: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads, length) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def main() -> None:
    parser = argparse.ArgumentParser(description="Run a GPT-2 of random weights on random tokens.")
    parser.add_argument("--train", action="store_true", help="train instead of predicting")
    sizes = {"layers": 12, "width": 768, "heads": 12, "length": 256, "vocabulary": 50257, "batch": 1, "steps": 3}
    for name, size in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=size)
    args = parser.parse_args()
    model = GPT2(args.layers, args.width, args.heads, args.length, args.vocabulary).to(device).train(args.train)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(args.steps):
        tokens = torch.randint(args.vocabulary, (args.batch, args.length)).to(device)
        with torch.set_grad_enabled(args.train):
            logits = model(tokens)
        if args.train:
            with part("loss"):
                loss = functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()


if __name__ == "__main__":
    main()
