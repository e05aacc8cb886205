"""One package is installed, by a wheel, an sdist, or an editable install."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import tracekit

ROOT = Path(__file__).parents[1]
SAMPLE = ROOT / "examples/traces/h200_gpt2_prefill.json.gz"
MODULES = {
    f"tracekit/{floor}{path.relative_to(ROOT / 'tracekit' / floor).as_posix()}"
    for floor in ("", "analyzers/", "reports/")
    for path in (ROOT / "tracekit" / floor).rglob("*.py")
}


def build(target, source, into):
    """Build a wheel or an sdist with hatchling."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(into)]
    subprocess.run(command, cwd=source, check=True, capture_output=True, text=True)
    (archive,) = into.glob("*.whl" if target == "wheel" else "*.tar.gz")
    return archive


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build("wheel", ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Return a folder with the wheel's files, as pip would put them into site-packages."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def run(arguments, folder, installed):
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_a_wheel_holds_one_package_with_its_types(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name.split("/")[0] for name in names} == {"tracekit", f"torch_tracekit-{tracekit.__version__}.dist-info"}
    assert names >= MODULES
    assert {
        "tracekit/py.typed",
        "tracekit/reports/analysis.schema.json",
        "tracekit/analyzers/cost/hardware/gpus.toml",
    } <= names


def test_an_sdist_is_small_and_builds_the_same_wheel(wheel, tmp_path):
    packed = build("sdist", ROOT, tmp_path)
    assert packed.stat().st_size <= 5_000_000
    with tarfile.open(packed) as archive:
        archive.extractall(tmp_path, filter="data")
    unpacked = tmp_path / f"torch_tracekit-{tracekit.__version__}"
    assert not (unpacked / "reports").exists()
    again = build("wheel", unpacked, tmp_path / "wheel")
    assert set(zipfile.ZipFile(again).namelist()) == set(zipfile.ZipFile(wheel).namelist())


def test_an_editable_install_exposes_tracekit_alone(tmp_path):
    code = f"from hatchling.build import build_editable; print(build_editable({str(tmp_path)!r}))"
    name = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    with zipfile.ZipFile(tmp_path / name.strip()) as archive:
        archive.extractall(tmp_path)
    hook = next(tmp_path.glob("_editable_impl_*.py")).read_text()
    assert hook.count("F.map_module(") == 1 and "F.map_module('tracekit'" in hook


def test_a_project_with_folders_of_the_same_names_runs(installed, tmp_path):
    for name in ("reports", "analyzers", "tests"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"WHOSE = 'the {name} of this project'\n")
    (tmp_path / "train.py").write_text(
        "import torch, analyzers, reports, tests\n"
        "torch.nn.Linear(4, 4)(torch.ones(2, 4))\n"
        "print(analyzers.WHOSE, reports.WHOSE, tests.WHOSE, sep='; ')\n"
    )
    ran = run(["-m", "tracekit", "run", "-o", "out", "train.py"], tmp_path, installed)
    assert ran.returncode == 0, ran.stderr
    assert "the analyzers of this project; the reports of this project; the tests of this project" in ran.stdout
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {"trace.json.gz", "report.html", "analysis.json"}


def test_tracekit_works_in_a_folder_with_an_unrelated_analyzers(installed, tmp_path):
    (tmp_path / "analyzers").mkdir()
    (tmp_path / "analyzers" / "__init__.py").write_text("raise RuntimeError('not for tracekit')\n")
    code = f"import tracekit; print(repr(tracekit.analyze({str(SAMPLE)!r})), tracekit.__file__)"
    ran = run(["-c", code], tmp_path, installed)
    assert ran.returncode == 0, ran.stderr
    assert str(installed) in ran.stdout


def test_every_public_name_is_there():
    assert {"Analysis", "Comparison", "Interval", "Recommendation", "TracekitError"} <= set(tracekit.__all__)
    assert all(getattr(tracekit, name) is not None for name in tracekit.__all__)


def test_an_analysis_describes_itself_in_a_few_lines():
    analysis = tracekit.analyze(SAMPLE)
    assert repr(analysis).count("\n") < 6 and "NVIDIA H200" in repr(analysis)
    assert analysis.steps is analysis.timeline.steps
