"""Published results of the studies repeated here: tokens per second at batch 1 over about 100 new tokens."""

T4 = {
    ("gpt2", "fp32"): 76.3,
    ("gpt2", "fp16"): 78.4,
    ("gpt2", "compile"): 110.3,
    ("gpt2", "fp16+compile"): 206.1,
}
A100 = {
    ("gpt2", "fp32"): 96.2,
    ("gpt2", "fp16"): 99.6,
    ("gpt2", "llm-int8"): 32.7,
    ("mistral-7b", "fp16"): 26.7,
    ("mistral-7b", "fp16+flash"): 20.4,
    ("mistral-7b", "nf4"): 18.7,
}
A100_GB = {("mistral-7b", "fp16"): 14.5, ("mistral-7b", "nf4"): 4.0}
"""Memory of the weights."""
T4_FORWARD = {"blocks": 0.898, "LM head": 0.069}
"""Shares of a forward of GPT-2."""
T4_BLOCK = {"attention": 0.376, "MLP": 0.256, "two norms": 0.225}
"""Shares of its blocks."""
