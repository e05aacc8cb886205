"""Read reports of Nsight Systems (.nsys-rep, .qdrep) by exporting them with nsys, where it is installed."""

import shutil
import subprocess
import tempfile
from pathlib import Path

from tracekit.analyzers.errors import InputError
from tracekit.analyzers.readers import nsys
from tracekit.analyzers.readers.source import MAX_BYTES, Source, open_source
from tracekit.analyzers.trace import Trace

_SUFFIXES = (".nsys-rep", ".qdrep")
_EXPORT = "nsys export --type sqlite --output trace.sqlite"


def is_named_so(path: Path) -> bool:
    """Whether the name is that of a report. The format is not documented and has no mark of its own."""
    return path.suffix.lower() in _SUFFIXES


def read(path: Path) -> Trace:
    """Exports the report and reads it. Raises InputError when nsys is not on the PATH, or cannot export it."""
    command = shutil.which("nsys")
    if not command:
        raise InputError(
            f"{path} is a report of Nsight Systems, which only nsys reads.",
            "There is no nsys on the PATH.",
            f"Export it where nsys is, and analyze that: {_EXPORT} {path.name}",
        )
    with tempfile.TemporaryDirectory(prefix="tracekit-") as folder:
        exported = Path(folder) / "trace.sqlite"
        _export(command, path, exported)
        with open_source(exported, MAX_BYTES) as source:
            return nsys.read(_renamed(source, str(path)))


def _export(command: str, path: Path, exported: Path) -> None:
    arguments = ["export", "--type", "sqlite", "--force-overwrite", "true", "--output", str(exported)]
    done = subprocess.run([command, *arguments, str(path.absolute())], capture_output=True, text=True, errors="replace")
    if done.returncode or not exported.is_file():
        said = (done.stderr or done.stdout).strip().splitlines()
        raise InputError(
            f"nsys could not export {path}.",
            f"It said: {said[-1]}" if said else f"It ended with status {done.returncode}.",
            f"Try it by hand, with the nsys that recorded it or a newer one: {_EXPORT} {path.name}",
        )


def _renamed(source: Source, name: str) -> Source:
    """Gives the export the name of its report, which errors show."""
    source.name = name
    return source
