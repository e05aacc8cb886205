"""Every command, and the Python functions, where an optional package is not installed."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tracekit.capture.packages import EXTRAS, require
from tracekit.cli import main

ROOT = Path(__file__).parents[1]
BLOCKING = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {packages!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name.partition(".")[0])

sys.meta_path.insert(0, Absent())
{code}
"""
NEED_TORCH = {
    "bench": ["bench", "--model", "gpt2", "--device", "cpu"],
    "calibrate": ["calibrate"],
    "profile": ["profile", "--model", "gpt2", "--gpu", "t4"],
    "run": ["run", "script.py"],
    "verify": ["verify", "run"],
}
NEED_NO_TORCH = {
    "analyze": ["analyze", "trace.json"],
    "annotate": ["annotate", "trace.json", "-o", "annotated.json"],
    "compare": ["compare", "trace.json", "trace.json"],
    "gpus": ["gpus"],
    "open": ["open", "--no-browser", "trace.json"],
    "predict": ["predict", "trace.json", "--gpu", "t4"],
    "report": ["report", "trace.json"],
}


@pytest.fixture
def here(tmp_path):
    """A folder with a script, the settings of a run, and a trace of one kernel and its op."""
    (tmp_path / "script.py").write_text("print('ran')\n")
    (tmp_path / "run").mkdir()
    settings = {"settings": {"model": "gpt2", "device": "cpu", "seq_len": 8}}
    (tmp_path / "run" / "run.json").write_text(json.dumps(settings))
    op = {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 0, "dur": 9, "args": {}}
    launch = op | {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 2, "dur": 3, "args": {"correlation": 1}}
    kernel = {"ph": "X", "cat": "kernel", "name": "add", "pid": 0, "tid": 7, "ts": 6, "dur": 4}
    kernel["args"] = {"device": 0, "stream": 7, "correlation": 1}
    trace = {"deviceProperties": [{"id": 0, "name": "Tesla T4"}], "traceEvents": [op, launch, kernel]}
    (tmp_path / "trace.json").write_text(json.dumps(trace))
    return tmp_path


def without(packages, code, folder):
    """What Python prints for the code, with these packages hidden."""
    text = BLOCKING.format(packages=set(packages), code=code)
    return subprocess.run([sys.executable, "-c", text], cwd=folder, capture_output=True, text=True, timeout=120)


def command(packages, words, folder):
    return without(packages, f"from tracekit.cli import main\nmain({words!r})", folder)


def test_every_command_is_tried():
    assert sorted(NEED_TORCH | NEED_NO_TORCH) == main.list_commands(None)


@pytest.mark.parametrize("verb", NEED_TORCH)
@pytest.mark.parametrize("package", ["torch", "transformers"])
def test_commands_that_run_a_model_say_what_to_install(here, verb, package):
    if package == "transformers" and verb in ("calibrate", "run"):
        pytest.skip("needs no transformers")
    done = command([package], NEED_TORCH[verb], here)
    assert done.returncode == 1
    assert f"{package} is not installed." in done.stderr, done.stderr
    assert "pip install 'tracekit[capture]'" in done.stderr
    assert "bug" not in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("verb", NEED_NO_TORCH)
def test_the_other_commands_need_no_extra(here, verb):
    done = command([*EXTRAS, "fsspec", "ncu_report"], NEED_NO_TORCH[verb], here)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "call",
    [
        "tracekit.profile('gpt2', gpu='t4')",
        "tracekit.capture('folder')",
        "tracekit.annotate(None)",
        "tracekit.verify(None, {})",
    ],
)
def test_python_functions_say_what_to_install(here, call):
    done = without(["torch"], f"import tracekit\n{call}", here)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("tracekit.analyzers.errors.MissingPackageError: torch is not installed."), done.stderr
    assert "pip install 'tracekit[capture]'" in last


@pytest.mark.parametrize(
    ("package", "words", "extra"),
    [
        ("fsspec", ["analyze", "https://example.org/trace.json"], "tracekit[remote]"),
        ("s3fs", ["analyze", "s3://bucket/trace.json"], "tracekit[remote]"),
        ("ncu_report", ["analyze", "kernels.ncu-rep"], "tracekit[ncu]"),
    ],
)
def test_readers_say_what_to_install(here, package, words, extra):
    (here / "kernels.ncu-rep").write_bytes(b"NVR\0" + bytes(64))
    done = command([package], words, here)
    assert done.returncode == 1
    assert f"pip install '{extra}'" in done.stderr, done.stderr


def test_the_notebook_extension_says_what_to_install(here):
    done = without(["IPython"], "import tracekit\ntracekit.load_ipython_extension", here)
    assert "MissingPackageError: IPython is not installed." in done.stderr
    assert "pip install 'tracekit[notebook]'" in done.stderr


@pytest.mark.parametrize("package", EXTRAS)
@pytest.mark.parametrize("module", ["", ".some.module"])
def test_an_extra_is_named_for_every_package_and_module(tmp_path, package, module):
    code = f"from tracekit.capture.packages import require\nrequire({package + module!r})"
    done = without([package], code, tmp_path)
    assert f"{package} is not installed." in done.stderr
    assert f"pip install 'tracekit[{EXTRAS[package]}]'" in done.stderr


def test_extras_are_those_of_the_project():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(EXTRAS.values()) <= set(extras)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("raise ImportError('libcudart.so.13: cannot open shared object file')", "libcudart.so.13"),
        ("raise OSError('a library is damaged')", "a library is damaged"),
        ("import absent_dependency", "absent_dependency"),
    ],
)
def test_a_package_that_cannot_be_loaded_is_no_bug(tmp_path, source, said):
    (tmp_path / "torch.py").write_text(source)
    done = command([], ["calibrate"], tmp_path)
    assert done.returncode == 1
    assert "torch cannot be imported." in done.stderr and said in done.stderr
    assert "Install it again" in done.stderr


def test_a_package_without_a_module_is_too_old():
    with pytest.raises(Exception, match=r"transformers \d.* has no module transformers\.nosuch"):
        require("transformers.nosuch")
