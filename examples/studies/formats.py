"""GPT-2 and Mistral-7B over types and formats of weights: throughput, memory, speed-up.

    python examples/studies/formats.py

Published: decoding on an A100 with transformers and bitsandbytes.
"""

from beside import run, show
from published import A100, A100_GB

ROWS = {
    "gpt2": ["fp32", "fp16", "llm-int8", "nf4", "fp16+flash"],
    "mistral-7b": ["fp16", "fp16+flash", "llm-int8", "nf4"],
}

if __name__ == "__main__":
    rows = [row for model, names in ROWS.items() for row in run([model], names, f"studies/formats-{model}")]
    show(rows, A100, "an A100")
    print(", ".join(f"{model} {name}: {size} GB published" for (model, name), size in A100_GB.items()))
