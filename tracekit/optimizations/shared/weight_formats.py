"""Weight formats, which exclude each other, and the code that loads a model in one of torchao's formats."""

WEIGHT_FORMATS = ("int8-weight-only", "int4-weight-only", "nf4", "llm-int8", "fp8-dynamic", "int8-dynamic")
"""Ids of the optimizations that change how weights are stored."""


def other_formats(own: str) -> dict[str, str]:
    """Return the formats that `own` cannot be combined with, and why."""
    return {other: "the weights are stored in one format." for other in WEIGHT_FORMATS if other != own}


def from_pretrained(configuration: str, *, also: str = "", compiled: bool = False) -> str:
    """Return code that loads a model with a configuration of torchao.quantization and skips the head.

    `also` are other names to import for the configuration.
    """
    names = ", ".join(filter(None, [configuration.partition("(")[0], also]))
    load = (
        f"from torchao.quantization import {names}\n"
        f"config = TorchAoConfig({configuration})\n"
        "model = AutoModelForCausalLM.from_pretrained(name, quantization_config=config)"
    )
    return f"{load}\nmodel = torch.compile(model)" if compiled else load
