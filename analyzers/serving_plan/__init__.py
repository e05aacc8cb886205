"""A serving engine simulated: requests batched in flight, and a paged KV cache."""
