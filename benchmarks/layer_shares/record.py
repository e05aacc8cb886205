"""Record every run on the GPU of this machine with torch.profiler, and write the shares of its layers.

    python benchmarks/layer_shares/record.py OUT                      # on a GPU: about a minute
    python benchmarks/layer_shares/record.py OUT --device cpu --tiny  # tries it anywhere

OUT receives shares.csv, machine.json and traces.tar (of the traces as recorded).
"""

import argparse
import json
import tarfile
import tempfile
from pathlib import Path

import pandas as pd
import torch
from shares import shares
from subjects import SETS, Subject, subjects

import tracekit

STEPS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--set", choices=SETS, default="first", help="which models (default: %(default)s)")
    parser.add_argument("--only", nargs="+", metavar="RUN", help="these runs of the set")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    tables = []
    with tempfile.TemporaryDirectory() as folder:
        known = subjects(args.set, args.tiny)
        for name, subject in ((name, known[name]) for name in args.only or known):
            tables.append(_recorded(name, subject, args.device, Path(folder, name)))
            pd.concat(tables).to_csv(args.output / "shares.csv", index=False)
        with tarfile.open(args.output / "traces.tar", "w") as archive:
            for trace in sorted(Path(folder).glob("*/trace.json.gz")):
                archive.add(trace, f"{trace.parent.name}.json.gz")
    (args.output / "machine.json").write_text(json.dumps(_machine(args.device), indent=1))
    print(pd.concat(tables)[lambda rows: rows["share"] > 0.02].to_string(index=False))


def _recorded(name: str, subject: Subject, device: str, folder: Path) -> pd.DataFrame:
    torch.manual_seed(0)
    model, inputs = subject.build()
    options = {"train": subject.train, "loss": subject.loss, "steps": STEPS, "device": device}
    return shares(name, tracekit.profile(model, inputs, output=folder, **options), STEPS)


def _machine(device: str) -> dict[str, str]:
    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    return {"device": name, "torch": torch.__version__, "cuda": str(torch.version.cuda)}


if __name__ == "__main__":
    main()
