"""Read SQLite exports of reports of Nsight Systems (nsys export --type sqlite), of any version.

Reports themselves (.nsys-rep, .qdrep) are exported with nsys first, if it is installed.
"""

import shutil
import subprocess
import tempfile
from pathlib import Path

from tracekit.analyzers.core import InputError
from tracekit.analyzers.trace.source import MAX_BYTES, Source, open_source
from tracekit.analyzers.trace.trace import Trace

FORMAT = "Nsight Systems SQLite"
MAGIC = b"SQLite format 3\0"


def sniff(head: bytes) -> bool:
    return head.startswith(MAGIC)


def read(source: Source) -> Trace:
    """Read an export.

    Raises InputError if the file is not an export of Nsight Systems, is too damaged to read, or contains no work.
    """
    from tracekit.analyzers.trace.nsys import reader

    return reader.read(source)


_SUFFIXES = (".nsys-rep", ".qdrep")
_EXPORT = "nsys export --type sqlite --output trace.sqlite"


def has_report_suffix(path: Path) -> bool:
    """Return whether the file name has a report's suffix. The format is undocumented and has no signature."""
    return path.suffix.lower() in _SUFFIXES


def read_report(path: Path) -> Trace:
    """Export the report and read it. Raises InputError if nsys is not on the PATH or cannot export it."""
    command = shutil.which("nsys")
    if not command:
        raise InputError(
            f"{path} is a report of Nsight Systems, which only nsys can read.",
            "There is no nsys on the PATH.",
            f"Export it where nsys is installed, and analyze the export: {_EXPORT} {path.name}",
        )
    with tempfile.TemporaryDirectory(prefix="tracekit-") as folder:
        exported = Path(folder) / "trace.sqlite"
        _export(command, path, exported)
        with open_source(exported, MAX_BYTES) as source:
            return read(_renamed(source, str(path)))


def _export(command: str, path: Path, exported: Path) -> None:
    arguments = ["export", "--type", "sqlite", "--force-overwrite", "true", "--output", str(exported)]
    done = subprocess.run([command, *arguments, str(path.absolute())], capture_output=True, text=True, errors="replace")
    if done.returncode or not exported.is_file():
        output = (done.stderr or done.stdout).strip().splitlines()
        raise InputError(
            f"nsys could not export {path}.",
            f"Its last output was: {output[-1]}" if output else f"It ended with status {done.returncode}.",
            f"Try it by hand, with the nsys that recorded it or a newer one: {_EXPORT} {path.name}",
        )


def _renamed(source: Source, name: str) -> Source:
    """Give the export the name of its report, which error messages show."""
    source.name = name
    return source
