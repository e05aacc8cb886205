"""Record the memory of three training steps on a GPU as PyTorch's snapshot.

    python examples/memory_snapshot.py snapshot.pickle
    tracekit memory snapshot.pickle

Prints the peak and what is allocated at the end, as torch counts them. Frames are Python's alone, which keeps the file
small.
"""

import sys

import torch


def main() -> None:
    torch.cuda.memory._record_memory_history(max_entries=10_000, stacks="python")
    layers = [torch.nn.Linear(512, 512) for _ in range(4)]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(512, 16)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        batch = torch.randn(256, 512, device="cuda")
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()
    torch.cuda.memory._dump_snapshot(sys.argv[1])
    print(f"peak {torch.cuda.max_memory_allocated()} allocated {torch.cuda.memory_allocated()}")


if __name__ == "__main__":
    main()
