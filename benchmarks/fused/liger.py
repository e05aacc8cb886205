"""A model with the kernels of liger-kernel."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tracekit.capture import models
from tracekit.run import Settings


def knows(settings: Settings) -> bool:
    """Return whether liger-kernel is installed and has kernels for the model."""
    try:
        from liger_kernel.transformers import monkey_patch
    except ImportError:
        return False
    kind = models.load_config(models.find(settings.model)).model_type
    return kind in monkey_patch.MODEL_TYPE_TO_APPLY_LIGER_FN


@contextmanager
def liger_model(settings: Settings) -> Iterator[Any]:
    """Give the run's model with liger-kernel's kernels, and undo its changes to the model's Python module after."""
    from liger_kernel.transformers import monkey_patch

    model = models.build_for(settings)
    module = sys.modules[type(model).__module__]
    before = dict(vars(module))
    try:
        monkey_patch._apply_liger_kernel_to_instance(model)
        yield model
    finally:
        vars(module).update(before)
