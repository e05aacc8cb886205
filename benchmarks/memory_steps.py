"""Record memory events of steps of three models that tracekit does not bundle, beside what it models.

    python benchmarks/memory_steps.py record OUT                     # on a GPU: half a minute
    python benchmarks/memory_steps.py compare OUT --gpu h100         # without one

`record` writes a trace of torch.profiler with `profile_memory=True` for each, and peaks.json with the peak that the
allocator counted. `compare` models the same steps, and prints both, by kind.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

import tracekit
from tracekit.analyzers.memory import KINDS
from tracekit.answer import memory_of_run
from tracekit.capture import OwnModel, ProfilerRanges, annotate

sys.path.append(str(Path(__file__).with_name("layer_shares")))
from subjects import Subject, subjects

RUNS = {"gpt2-train-fp32": "first", "vision-train-amp": "second", "denoiser-forward-fp16": "second"}
"""Names of runs, with their sets."""
PEAKS = "peaks.json"


def chosen(tiny: bool) -> dict[str, Subject]:
    return {name: subjects(which, tiny)[name] for name, which in RUNS.items()}


def record(folder: Path, device: str, tiny: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    peaks: dict[str, int] = {}
    for name, subject in chosen(tiny).items():
        model, inputs = subject.build()
        own = OwnModel(model, inputs, subject.train, subject.loss).on(device)
        del model, inputs
        optimizer = torch.optim.AdamW(own.model.parameters()) if own.train else None
        step, emitter = own.step(optimizer), ProfilerRanges()
        for _ in range(2):
            step(emitter)
        if device == "cuda":
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        with annotate(own.model, emitter), torch.profiler.profile(record_shapes=True, profile_memory=True) as profiler:
            step(emitter)
        peaks[name] = torch.cuda.max_memory_allocated() if device == "cuda" else 0
        profiler.export_chrome_trace(str(folder / f"{name}.json.gz"))
        (folder / PEAKS).write_text(json.dumps(peaks, indent=1))
        del own, optimizer, step, profiler
        if device == "cuda":
            torch.cuda.empty_cache()


def compare(folder: Path, gpu: str, tiny: bool) -> None:
    peaks = json.loads((folder / PEAKS).read_text())
    for name, subject in chosen(tiny).items():
        model, inputs = subject.build()
        with tempfile.TemporaryDirectory() as out:
            options = {"train": subject.train, "loss": subject.loss, "steps": 1, "device": "model", "output": out}
            tracekit.profile(model, inputs, gpu=gpu, force=True, **options)
            modelled, measured = memory_of_run(Path(out)), memory_of_run(folder / f"{name}.json.gz")
        print(f"{name}: allocator {peaks[name] / 1e6:,.1f} MB")
        _side_by_side(modelled.timeline, measured.timeline)


def _side_by_side(modelled: Any, measured: Any) -> None:
    print(f"  {'peak':18}{modelled.peak_bytes / 1e6:12,.1f}{measured.peak_bytes / 1e6:12,.1f} MB")
    for kind in KINDS:
        sizes = [each.at_peak.loc[each.at_peak["kind"] == kind, "bytes"].sum() / 1e6 for each in (modelled, measured)]
        if any(sizes):
            print(f"  {kind:18}{sizes[0]:12,.1f}{sizes[1]:12,.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("do", choices=["record", "compare"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gpu", default="h100")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    if args.do == "record":
        record(args.folder, args.device, args.tiny)
    else:
        compare(args.folder, args.gpu, args.tiny)


if __name__ == "__main__":
    main()
