"""Moves host code around and inside the model to the GPU, does it ahead of time, or removes it."""

from tracekit.analyzers.prediction.baseline import Baseline
from tracekit.analyzers.prediction.values import Costs
from tracekit.analyzers.transforms.outcome import Outcome
from tracekit.optimizations.shared.host_work import LessHostWork

MOVED = {"low": 0.9, "expected": 0.97, "high": 1.0}
"""Fraction of a function's time that disappears once it runs on the GPU: 0.95, 0.96, 0.97 and all of it in four scripts
on an H100."""
_PROCESSOR = r"image_process|processing_|feature_extract|preprocess"
_RESIZES = r"zoom|resize|interpolat|PIL|Image\."
_VIDEO = r"video|decord|av\.|cv2|imageio"


class Preprocessing(LessHostWork):
    """Host code around and inside the model moves to the GPU or out of the step, or is removed.

    It consists of functions outside the model and of long stretches of Python inside it. As expected 0.97 of its time
    disappears, at best all of it, and nine tenths of the largest function's time at the low end. The evidence names
    the functions, their callers, files and lines.

    *Refused* if they take less than 1 % of the step.
    """

    id = "preprocessing"
    title = "Preprocessing off the critical path"
    costs = Costs("the raw inputs", "rounding, where other code resizes", "the code around the model")
    causes = ("preprocessing", "python")
    nothing = "No function of the host outside the model's ops takes a notable part of the step."
    caveats = ("Resizing on the GPU may round otherwise than on the CPU: compare the model's answers.",)

    def left(self, base: Baseline, outcome: Outcome) -> float:
        """Return the fraction of the work that remains; at worst, only the largest function is moved."""
        return 1 - MOVED[outcome] * (_largest_share(base, self.causes) if outcome == "low" else 1.0)

    def how_to(self, base: Baseline) -> str:
        rows = base.host_causes[base.host_causes["cause"].isin(self.causes)]
        names = (rows["name"].astype(str) + " " + rows["caller"].astype(str)).str
        if names.contains(_PROCESSOR, case=False).any():
            return (
                "processor = AutoProcessor.from_pretrained(name, use_fast=True)\n"
                'inputs = processor(images=images, device="cuda", return_tensors="pt")'
            )
        if names.contains(_VIDEO, case=False).any():
            return 'decoder = torchcodec.decoders.VideoDecoder(path, device="cuda")'
        if names.contains(_RESIZES, case=False).any():
            return 'images = torch.nn.functional.interpolate(images.to("cuda"), size=size, mode="bilinear")'
        return "# with torch ops on the GPU, once before the loop, or in workers: DataLoader(dataset, num_workers=8)"


def _largest_share(base: Baseline, causes: tuple[str, ...]) -> float:
    """Return the largest function's fraction of the work, 0 to 1."""
    rows = base.host_causes[base.host_causes["cause"].isin(causes)]
    times = rows.groupby("name")["idle_ns"].sum()
    return float(times.max() / times.sum()) if len(times) and times.sum() else 1.0
