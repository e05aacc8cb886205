"""Serves the Model Context Protocol over standard input and output."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from tracekit import __version__
from tracekit.analyzers.errors import TracekitError
from tracekit.capture.packages import require
from tracekit.programs.tools import MOST_CHARACTERS, Answer, Tools
from tracekit.reports.brief.brief import UNTRUSTED
from tracekit.reports.untrusted import json_text, printable_lines

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
