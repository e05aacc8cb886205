"""Turns exceptions from the code of a model into errors that say what to do."""

from collections.abc import Iterator
from contextlib import contextmanager

from tracekit.analyzers.errors import InputError, TracekitError
from tracekit.capture.packages import require


@contextmanager
def model_errors(name: str, run: str, *, bundled: bool) -> Iterator[None]:
    """Raise InputError for an exception from a model's code. An exception of a bundled model is raised unchanged."""
    fake = require("torch._subclasses.fake_tensor")
    try:
        yield
    except (TracekitError, MemoryError, require("torch").OutOfMemoryError):
        raise
    except (fake.DataDependentOutputException, fake.DynamicOutputShapeException) as error:
        raise InputError(
            f"{name} cannot be modelled.",
            "Its code reads values of tensors, and a modelled run computes none.",
            "Add --device cpu, or run it where there is a GPU.",
        ) from error
    except Exception as error:  # a wrong value can make the model's code raise any exception
        if bundled:
            raise
        raise InputError(
            f"{name} cannot run {run}.",
            first_line(error),
            "Check its config.json. If the model runs without tracekit, report what -v prints.",
        ) from error


def first_line(error: Exception) -> str:
    """Return the message of a library's exception in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    return " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
