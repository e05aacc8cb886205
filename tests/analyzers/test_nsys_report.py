"""Reports of Nsight Systems, exported by the nsys on the PATH."""

import os
import sys

import pytest
from nsys_files import Export

from tracekit.analyzers.core import InputError
from tracekit.analyzers.trace import load

REPORT = b"\x12\x34 not documented"


@pytest.fixture
def report(tmp_path):
    path = tmp_path / "-run 1.nsys-rep"
    path.write_bytes(REPORT)
    return path


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Put an nsys that runs these lines of Python on the PATH; `output` and `report` are its arguments."""

    def nsys(*lines):
        folder = tmp_path / "bin"
        folder.mkdir()
        script = folder / "nsys"
        head = [f"#!{sys.executable}", "import shutil, sys", "output, report = sys.argv[-2:]"]
        script.write_text("\n".join([*head, *lines]))
        script.chmod(0o755)
        monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)

    return nsys


def test_exported_by_nsys(report, tmp_path, install):
    sqlite = Export().launched("gemm", 10, 50, 90, 1).write(tmp_path / "real.sqlite")
    expected = ["export", "--type", "sqlite", "--force-overwrite", "true", "--output"]
    install(f"assert sys.argv[1:-2] == {expected}", f"assert open(report, 'rb').read() == {REPORT!r}",
            f"shutil.copy({str(sqlite)!r}, output)")  # fmt: skip
    trace = load(report)
    assert trace.metadata.format == "nsys"
    assert trace.device["name"].tolist() == ["gemm"]


def test_without_nsys_it_says_how_to_export(report, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(InputError, match="no nsys on the PATH") as error:
        load(report)
    assert "nsys export --type sqlite" in error.value.hint


def test_what_nsys_says_when_it_fails(report, install):
    install("print('loading', file=sys.stderr)", "sys.exit('the report is of a newer version')")
    with pytest.raises(InputError, match="Its last output was: the report is of a newer version"):
        load(report)


def test_an_nsys_that_writes_nothing(report, install):
    install("pass")
    with pytest.raises(InputError, match="ended with status 0"):
        load(report)


def test_errors_name_the_report(report, tmp_path, install):
    sqlite = Export().row("CUPTI_ACTIVITY_KIND_KERNEL", start=None).write(tmp_path / "empty.sqlite")
    install(f"shutil.copy({str(sqlite)!r}, output)")
    with pytest.raises(InputError, match=r"run 1\.nsys-rep contains nothing to analyze"):
        load(report)


def test_content_goes_before_the_name(tmp_path):
    path = Export().kernel("k", 10, 20, 1).write(tmp_path / "misnamed.nsys-rep")
    assert load(path).device["name"].tolist() == ["k"]
