"""Captures a model, a script or a block of torch code in a trace file.

`tracekit.capture("run/")` is a context manager. This package has its name, so it makes itself callable.
"""

import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from tracekit.analyzers.core import lazily

if TYPE_CHECKING:
    from tracekit.capture import capture_session, device_run, models, ranks_here, workloads
    from tracekit.capture.capture_session import (
        Capture,
        device_of,
        gpu_here,
        modelled_or_projected,
        profile_script,
        refuse_modelled,
        run_script,
        session,
    )
    from tracekit.capture.complete_settings import complete
    from tracekit.capture.device_run import explained
    from tracekit.capture.emitted_ranges import (
        Emitter,
        NoRanges,
        ProfilerRanges,
        annotate,
        annotate_every_module,
        phase,
    )
    from tracekit.capture.fake import model_trace, steps
    from tracekit.capture.fake.model_trace import Modelled, write_run
    from tracekit.capture.fake.op_graph import graph_of
    from tracekit.capture.fake.recording import Recording
    from tracekit.capture.fake.session import ModelledCapture
    from tracekit.capture.fake.steps import FakeRun, record, run_on_fake_tensors
    from tracekit.capture.inputs import last_logits_only, prompt_inputs
    from tracekit.capture.latency import (
        WARM_UP_STEPS,
        Clock,
        HostClock,
        ModuleTimes,
        clock_of,
        summarize,
        synchronize,
        time_step,
    )
    from tracekit.capture.model_kinds import config_of, kind_of, longest_sequence, plain, text_of
    from tracekit.capture.models import bundled, find, load_config
    from tracekit.capture.narrow_weights import (
        NARROW,
        NarrowFile,
        NarrowLayer,
        WeightFormat,
        from_stored,
        in_groups,
        read_narrow,
        to_stored,
    )
    from tracekit.capture.own_model import Loss, OwnModel, weights_of
    from tracekit.capture.precision import (
        CUDNN,
        EFFICIENT,
        FLASH,
        TORCH_NAMES,
        WORDS,
        Autocast,
        Backend,
        backend_of,
        beginning,
        numerics,
        torch_dtype,
    )
    from tracekit.capture.workloads import WORKLOADS, Step
    from tracekit.run import Device
else:
    __getattr__ = lazily(__name__, __file__)


class _CallablePackage(ModuleType):
    def __call__(
        self,
        folder: str | Path,
        *,
        gpu: str = "",
        gpu_file: str | Path = "",
        device: "Device" = "auto",
        force: bool = False,
    ) -> "Capture | ModelledCapture":
        from tracekit.capture.capture_session import session

        return session(Path(folder), gpu=gpu, gpu_file=gpu_file, device=device, force=force)


sys.modules[__name__].__class__ = _CallablePackage
