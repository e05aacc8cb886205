"""Perfetto's message types, imported when a trace of it is read (the extra `perfetto`)."""

from importlib import import_module
from typing import Any

from tracekit.analyzers.errors import MissingPackageError
from tracekit.analyzers.packages import installing


def messages() -> Any:
    """Return Perfetto's module of messages. Raises MissingPackageError without the package."""
    try:
        return import_module("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    except ImportError as error:
        raise MissingPackageError(
            "A Perfetto trace needs Perfetto's Python package to be read.",
            f"{'The package perfetto is not installed' if error.name == 'perfetto' else error}.",
            f"{installing('perfetto')}. Or export JSON: export_chrome_trace('trace.json.gz').",
        ) from error


def decode_error() -> type[Exception]:
    """Return the exception that decoding raises for bytes that are not a message."""
    error: type[Exception] = import_module("google.protobuf.message").DecodeError
    return error


def text(value: str | bytes) -> str:
    """Return a string of a message. protobuf returns bytes for a string that is not UTF-8."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
