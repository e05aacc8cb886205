"""A network on a graph: messages along edges, summed at their targets, with batch norms."""

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.profiler import record_function as part


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.message = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, width))
        self.update, self.norm = nn.Linear(2 * width, width), nn.BatchNorm1d(width)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        source, target = edges
        with part("gather"):
            pairs = torch.cat((nodes.index_select(0, source), nodes.index_select(0, target)), dim=1)
        messages = self.message(pairs)
        with part("scatter"):
            sums = torch.zeros_like(nodes).index_add_(0, target, messages)
        return nodes + functional.relu(self.norm(self.update(torch.cat((nodes, sums), dim=1))))


class GraphNetwork(nn.Module):
    def __init__(self, layers: int, features: int, width: int, classes: int) -> None:
        super().__init__()
        self.encode = nn.Linear(features, width)
        self.layers = nn.ModuleList(Layer(width) for _ in range(layers))
        self.head = nn.Linear(width, classes)

    def forward(self, features: Tensor, edges: Tensor) -> Tensor:
        nodes = self.encode(features)
        for layer in self.layers:
            nodes = layer(nodes, edges)
        return self.head(nodes)
