"""Perfetto's trace processor, run by node."""

import json
import subprocess
from pathlib import Path
from typing import Any

_SCRIPT = Path(__file__).with_name("trace_processor.mjs")


def query(node: str, engine: Path, trace: Path, *questions: str) -> list[list[dict[str, Any]]]:
    """The rows that each question in SQL finds in the trace. `engine` is the folder that holds the trace processor."""
    command = [node, str(_SCRIPT), str(engine), str(trace), *questions]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])
