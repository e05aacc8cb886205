"""Runs a model on several ranks of this host, each in its own process, and writes one trace per rank."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tracekit.analyzers.errors import InputError
from tracekit.capture.parallel.split import Split
from tracekit.capture.progress import Say
from tracekit.capture.settings import Settings

_POLL_S = 0.1


def write(settings: Settings, split: Split, folder: Path, say: Say) -> None:
    """Write FOLDER/rank-N/trace.json.gz of each rank. If a rank fails, the others are ended and InputError is
    raised."""
    say(f"starting {split.ranks} ranks of {settings.shown_name} ({split.kind}) on {settings.device}")
    port = _free_port()
    with tempfile.TemporaryDirectory() as logs:
        errors = [Path(logs) / str(rank) for rank in range(split.ranks)]
        ranks = [_started(settings, folder, rank, split.ranks, port, error) for rank, error in enumerate(errors)]
        try:
            failed = _failed(ranks)
        finally:
            for each in ranks:
                each.kill()
                each.wait()
        if failed is not None:
            lines = errors[failed].read_text(errors="replace").strip().splitlines()
            why = lines[-1][:500] if lines else f"Its process ended with status {ranks[failed].returncode}."
            raise InputError(f"Rank {failed} failed.", why, "Try one GPU first: leave out the options of ranks.")


def _started(
    settings: Settings, folder: Path, rank: int, ranks: int, port: int, error: Path
) -> "subprocess.Popen[bytes]":
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "MASTER_PORT": port}
    variables = {**os.environ, **{name: str(value) for name, value in place.items()}, "MASTER_ADDR": "127.0.0.1"}
    command = [sys.executable, "-m", "tracekit.capture.parallel.one_rank", json.dumps(settings.as_dict()), str(folder)]
    with error.open("wb") as written:
        return subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL, stderr=written)


def _failed(ranks: Sequence["subprocess.Popen[bytes]"]) -> int | None:
    """Wait until all ranks have ended or one has failed; return the number of the failed one."""
    while True:
        states = [each.poll() for each in ranks]
        failed = [rank for rank, state in enumerate(states) if state not in (None, 0)]
        if failed or None not in states:
            return failed[0] if failed else None
        time.sleep(_POLL_S)


def _free_port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return int(opened.getsockname()[1])
