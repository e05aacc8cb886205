"""Code to copy: a model loaded in a format of torchao's."""


def from_pretrained(configuration: str, *, also: str = "", compiled: bool = False) -> str:
    """With a configuration of torchao.quantization (and what `also` to import for it), the head left as it is."""
    names = ", ".join(filter(None, [configuration.partition("(")[0], also]))
    load = (
        f"from torchao.quantization import {names}\n"
        f"config = TorchAoConfig({configuration})\n"
        "model = AutoModelForCausalLM.from_pretrained(name, quantization_config=config)"
    )
    return f"{load}\nmodel = torch.compile(model)" if compiled else load
