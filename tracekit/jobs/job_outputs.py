"""Writes the outputs of an analysis of ranks: a page, data, and the traces of three ranks for Perfetto."""

import os
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from tracekit.analyzers.errors import InputError
from tracekit.analyzers.readers.remote import is_url
from tracekit.answers.job_of_ranks import RankFiles
from tracekit.reports.files import check_writable, write_atomically, written
from tracekit.reports.findings.write import public_copy
from tracekit.reports.names import shell_word
from tracekit.reports.ranks import job_export, page
from tracekit.reports.replacing import check_not_input, check_page, check_text, mark_of
from tracekit.runs import folders

PAGE, DATA, TABLE, TRACES = "ranks.html", "ranks.json", "ranks.parquet", "ranks.tar"

Where = str | Path | Sequence[str | Path]


def check_outputs(folder: Path, where: Where, force: bool) -> None:
    """Raise TracekitError if the folder cannot be written to, or contains the outputs of another job."""
    for name in (PAGE, DATA, TABLE, TRACES):
        check_writable(folder / name)
    check_page(folder / PAGE, "ranks", marked(where), force)
    check_text(folder / DATA, "an analysis of ranks", ['"schema_version"', '"stragglers"'], force)


def check_file(path: Path, form: str, where: Where, force: bool) -> None:
    """Raise TracekitError if a file cannot be written, or is an input or the page of another job."""
    check_writable(path)
    check_not_input(path, *([where] if isinstance(where, str | os.PathLike) else where))
    if form == "html":
        check_page(path, "ranks", marked(where), force)


def page_of(answer: RankFiles, folder: Path, where: Where) -> str:
    """Return the page of a job, to be written into `folder`."""
    return page.render(answer.job, marked(where), commands_for_reports(answer), links_to_reports(answer, folder))


def write_outputs(answer: RankFiles, folder: Path, where: Where) -> list[str]:
    """Write the outputs into the folder. Returns their names."""
    write_atomically(folder / PAGE, page_of(answer, folder, where))
    write_atomically(folder / DATA, job_export.to_json(answer.job))
    table = job_export.to_parquet(answer.job)
    if table is not None:
        write_atomically(folder / TABLE, table)
    with written(folder / TRACES) as beside:
        copied = _write_traces(answer, beside)
    if not copied:
        (folder / TRACES).unlink()
    return [PAGE, DATA, *([TABLE] if table is not None else []), *([TRACES] if copied else [])]


def links_to_reports(answer: RankFiles, folder: Path) -> dict[int, str]:
    """Return the links from the page to the ranks' own reports: those beside their traces."""
    beside = {rank: folders.page_of(path) for rank, path in _local_files(answer).items()}
    return {
        rank: quote(Path(os.path.relpath(path, folder)).as_posix()) for rank, path in beside.items() if path.is_file()
    }


def commands_for_reports(answer: RankFiles) -> dict[int, str]:
    """Return the commands that write the ranks' own reports, to be run in the innermost folder with all traces."""
    files = _local_files(answer)
    top = os.path.commonpath([path.parent for path in files.values()]) if files else ""
    paths = {rank: [path.relative_to(top), folders.page_of(path).relative_to(top)] for rank, path in files.items()}
    return {
        rank: "tracekit analyze {} -o {}".format(*(shell_word(str(each)) for each in both))
        for rank, both in paths.items()
    }


def _local_files(answer: RankFiles) -> dict[int, Path]:
    return {rank: Path(file).absolute() for rank, file in answer.files.items() if not is_url(file)}


def _write_traces(answer: RankFiles, target: Path) -> int:
    """Write the traces of the slow, the fast and the median rank, without data that identifies machines; return their
    number."""
    copied = 0
    with tarfile.open(target, "w") as archive, tempfile.TemporaryDirectory(dir=target.parent) as folder:
        for role, rank in answer.job.shown_ranks.items():
            copy = Path(folder) / f"{role}-rank-{rank}.json.gz"
            try:
                public_copy(answer.files[rank], copy)
            except InputError:  # a report of another tool
                continue
            archive.add(copy, copy.name, filter=_anonymous)
            copied += 1
    return copied


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def marked(where: Where) -> str:
    """Return the mark of a job's traces (see `replacing.mark_of`)."""
    return mark_of(where) if isinstance(where, str | os.PathLike) else mark_of(*where)
