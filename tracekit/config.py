"""Where tracekit keeps what it learned about a machine: $XDG_CONFIG_HOME/tracekit, by default ~/.config/tracekit."""

import os
from pathlib import Path


def folder() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "tracekit"
