"""Runs Perfetto's trace processor with node."""

import json
import subprocess
from pathlib import Path
from typing import Any

_SCRIPT = Path(__file__).with_name("trace_processor.mjs")


def query(node: str, engine: Path, trace: Path, *questions: str) -> list[list[dict[str, Any]]]:
    """Return the rows of each SQL query on the trace. `engine` is the folder of the trace processor."""
    once = "--liftoff-only"  # the engine runs for less time than optimizing its code takes
    command = [node, once, str(_SCRIPT), str(engine), str(trace), *questions]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])
