"""Serves the Model Context Protocol over standard input and output."""

from collections.abc import Callable
from functools import wraps
from importlib.resources import files
from pathlib import Path
from typing import Any

from tracekit.agents.tools import MOST_CHARACTERS, Answer, Tools
from tracekit.analyzers.core import TracekitError
from tracekit.reports.answer import UNTRUSTED
from tracekit.reports.words import check_writable, json_text, printable_lines, write_atomically
from tracekit.run import require
from tracekit.version import __version__

_INSTRUCTIONS = (
    "tracekit reads traces of PyTorch programs. Begin with analyze; drill down with show and an id of its answer; ask "
    "predict before a change and check after it. Intervals are 80 % predictions; an abstention means that the gain "
    f"is unknown, not that nothing helps. {UNTRUSTED}"
)


def server(tools: Tools, *, allow_write: bool = False) -> Any:
    """Return the server of these tools. Raises MissingPackageError without the package mcp."""
    protocol = require("mcp.server.mcpserver")
    annotations = require("mcp_types").ToolAnnotations
    made = protocol.MCPServer("tracekit", version=__version__, instructions=_INSTRUCTIONS, log_level="ERROR")
    reading = annotations(read_only_hint=True, open_world_hint=False)
    for tool in (tools.analyze, tools.show, tools.predict, tools.sweep, tools.compare, tools.check, tools.ranks):
        made.tool(annotations=reading, structured_output=False)(_explained(tool))
    if allow_write:
        writing = annotations(read_only_hint=False, destructive_hint=True, open_world_hint=False)
        made.tool(annotations=writing, structured_output=False)(_explained(tools.save_baseline))
    return made


def _explained(tool: Callable[..., Answer]) -> Callable[..., str]:
    """Wrap a tool for the protocol: it returns JSON text, and errors as what, why and what to try."""
    exceptions = require("mcp.server.mcpserver.exceptions")

    @wraps(tool)
    def called(*args: Any, **named: Any) -> str:
        try:
            return json_text(tool(*args, **named))
        except TracekitError as error:
            raise exceptions.ToolError(printable_lines(str(error))[:MOST_CHARACTERS]) from error
        except OSError as error:
            raise exceptions.ToolError(f"A file cannot be used: {error.strerror}.") from error

    called.__annotations__ = {**called.__annotations__, "return": str}
    return called


FILE = "SKILL.md"
_MARK = "name: tracekit\n"


def text() -> str:
    """Return the skill."""
    return (files("tracekit.agents") / "skill.md").read_text("utf-8")


def install(folder: Path, *, force: bool = False) -> Path:
    """Write the skill into `folder`/tracekit, and return its file. Raises TracekitError if another file is there."""
    path = folder / "tracekit" / FILE
    check_writable(path)
    if path.exists() and not force and _MARK not in path.read_text("utf-8", "replace"):
        raise TracekitError(
            f"{path} exists, and is not tracekit's.", "It would be overwritten.", "Add --force to replace it."
        )
    write_atomically(path, text())
    return path
