"""Token embedding + position embedding: one kernel gathers both rows and adds them. For inference."""

import torch
import triton
import triton.language as tl

CONFIGS = ({"num_warps": 4}, {"num_warps": 2}, {"num_warps": 8})
"""Launch configurations to try, best first. A block adds the rows of one token."""
CONFIG = CONFIGS[0]


@triton.jit
def _added(token_ptr, position_ptr, table_ptr, positions_ptr, out_ptr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < COLUMNS
    token, position = tl.load(token_ptr + row), tl.load(position_ptr + row)
    first = tl.load(table_ptr + token * COLUMNS + column, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(positions_ptr + position * COLUMNS + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * COLUMNS + column, first + second, mask=inside)


def fused(tokens, positions, token_table, position_table):
    """Return token_table[tokens] + position_table[positions]; positions are broadcast to the tokens."""
    tokens, positions = tokens.contiguous(), positions.expand_as(tokens).contiguous()
    columns = token_table.shape[1]
    out = torch.empty(*tokens.shape, columns, dtype=token_table.dtype, device=token_table.device)
    if out.numel():
        _added[(tokens.numel(),)](
            tokens,
            positions,
            token_table.contiguous(),
            position_table.contiguous(),
            out,
            columns,
            triton.next_power_of_2(columns),
            **CONFIG,
        )
    return out


def reference(tokens, positions, token_table, position_table):
    embedding = torch.nn.functional.embedding
    return embedding(tokens, token_table) + embedding(positions, position_table)


def example(dtype, device, rows=4, columns=768, vocabulary=1000):
    tokens = torch.randint(vocabulary, (1, rows), device=device)
    tables = (
        torch.randn(vocabulary, columns, dtype=dtype, device=device),
        torch.randn(max(rows, 16), columns, dtype=dtype, device=device),
    )
    return tokens, torch.arange(rows, device=device).unsqueeze(0), *tables
