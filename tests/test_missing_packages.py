"""Every command and the Python functions, without an optional package."""

import json
import pickle
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pytest
from tiny_trace import write_tiny_trace

from tracekit.analyzers.core.errors import REQUIREMENTS
from tracekit.cli import main
from tracekit.run import require

ROOT = Path(__file__).parents[1]
BLOCKING = """
import contextlib, io, json, sys, traceback

class Absent:
    packages = ()

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.packages:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name.partition(".")[0])

def call(packages, code):
    Absent.packages = packages
    for name in [name for name in sys.modules if name.partition(".")[0] in packages]:
        del sys.modules[name]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as errors:
        try:
            exec(code, {})
            return 0, errors.getvalue()
        except SystemExit as end:
            return end.code or 0, errors.getvalue()
        except Exception:
            traceback.print_exc()
            return 1, errors.getvalue()

sys.meta_path.insert(0, Absent())
print(json.dumps([call(packages, code) for packages, code in json.loads(sys.argv[1])]))
"""
NEED_TORCH = {
    "bench": ["bench", "--model", "gpt2", "--device", "cpu"],
    "calibrate": ["calibrate"],
    "profile": ["profile", "--model", "gpt2", "--gpu", "t4"],
    "quantize": ["quantize", "--model", "gpt2", "--to", "int4", "--device", "cpu", "-o", "gpt2.safetensors"],
    "run": ["run", "script.py"],
    "verify": ["verify", "run"],
}
RECORDED = str(ROOT / "examples/execution_traces/cuda_llama_prefill")
NEED_TRITON = {
    "fuse": [
        "fuse",
        f"{RECORDED}.trace.json.gz",
        "--execution-trace",
        f"{RECORDED}.et.json.gz",
        "--all",
        "-o",
        "kernels",
    ]
}
NEED_NO_TORCH = {
    "analyze": ["analyze", "trace.json"],
    "check": ["check", "trace.json", "--against", "second.json", "--only", "counters"],
    "compare": ["compare", "trace.json", "trace.json"],
    "gpus": ["gpus"],
    "memory": ["memory", "snapshot.pickle"],
    "serve-plan": ["serve-plan", "--model", "gpt2", "--gpu", "t4", "--requests", "poisson:1,8,2"],
    "open": ["open", "--no-browser", "trace.json"],
    "predict": ["predict", "trace.json", "--gpu", "t4"],
    "ranks": ["ranks", "trace.json", "second.json", "--workers", "1"],
}
NEED_THEIR_EXTRA = {"mcp": ["mcp"]}


class Done(NamedTuple):
    status: int
    stderr: str


def write_inputs(folder: Path) -> Path:
    """Write a script, the settings of a run, and traces into a folder."""
    (folder / "script.py").write_text("print('ran')\n")
    (folder / "kernels.ncu-rep").write_bytes(b"NVR\0" + bytes(64))
    (folder / "trace.pftrace").write_bytes(b"\x0a\x02\x50\x01")
    (folder / "run").mkdir()
    settings = {"settings": {"model": "gpt2", "device": "cpu", "seq_len": 8}}
    (folder / "run" / "run.json").write_text(json.dumps(settings))
    write_tiny_trace(folder / "trace.json")
    write_tiny_trace(folder / "second.json", kernel_us=5)
    (folder / "snapshot.pickle").write_bytes(pickle.dumps({"segments": []}))
    return folder


def each_without(cases: Iterable[tuple[Iterable[str], str]], folder: Path) -> list[Done]:
    """Run pieces of code in one process, each of which cannot import some packages, and return how they end."""
    given = json.dumps([(sorted(packages), code) for packages, code in cases])
    command = [sys.executable, "-c", BLOCKING, given]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [Done(*each) for each in json.loads(done.stdout.splitlines()[-1])]


def without(packages: Iterable[str], codes: Iterable[str], folder: Path) -> list[Done]:
    """Run each piece of code in one process that cannot import these packages, and return how it ends."""
    return each_without([(list(packages), code) for code in codes], folder)


def quoted(package: str) -> str:
    """Return the requirements of a package as a hint names them."""
    return " ".join(f"'{each}'" for each in REQUIREMENTS[package])


def command(words: list[str]) -> str:
    return f"from tracekit.cli import main\nmain({words!r})"


def test_every_command_is_tried():
    assert sorted({*NEED_TORCH, *NEED_NO_TORCH, *NEED_THEIR_EXTRA, *NEED_TRITON}) == main.list_commands(None)


@pytest.mark.parametrize(
    ("package", "verbs"), [("torch", list(NEED_TORCH)), ("transformers", ["bench", "profile", "quantize", "verify"])]
)
def test_commands_that_run_a_model_say_what_to_install(tmp_path, package, verbs):
    every = without([package], [command(NEED_TORCH[verb]) for verb in verbs], write_inputs(tmp_path))
    for verb, done in zip(verbs, every, strict=True):
        assert done.status == 1, verb
        assert f"{package} is not installed." in done.stderr, (verb, done.stderr)
        assert f"pip install {quoted(package)}" in done.stderr
        assert "bug" not in done.stderr and "Traceback" not in done.stderr


def test_kernels_are_written_with_torch_and_triton(tmp_path):
    packages = ("torch", "triton")
    every = each_without([([package], command(NEED_TRITON["fuse"])) for package in packages], tmp_path)
    for package, done in zip(packages, every, strict=True):
        assert done.status == 1 and f"{package} is not installed." in done.stderr, done.stderr
        assert f"pip install {quoted(package)}" in done.stderr and not (tmp_path / "kernels").exists()


def test_the_other_commands_need_no_extra(tmp_path):
    codes = [command(words) for words in NEED_NO_TORCH.values()]
    every = without(REQUIREMENTS, codes, write_inputs(tmp_path))
    for verb, done in zip(NEED_NO_TORCH, every, strict=True):
        assert done.status == 0, (verb, done.stderr)


def test_python_functions_say_what_to_install(tmp_path):
    calls = (
        "tracekit.profile('gpt2', gpu='t4')",
        "tracekit.capture('folder')",
        "tracekit.annotate(None)",
        "tracekit.verify(None, {})",
    )
    for done in without(["torch"], [f"import tracekit\n{call}" for call in calls], tmp_path):
        last = done.stderr.strip().splitlines()[-1]
        assert last.startswith("tracekit.analyzers.core.errors.MissingPackageError: torch is not installed."), (
            done.stderr
        )
        assert f"pip install {quoted('torch')}" in last


EXTRA_OF = {
    "fsspec": (command(["analyze", "https://example.org/trace.json"]), "fsspec"),
    "s3fs": (command(["analyze", "s3://bucket/trace.json"]), "fsspec"),
    "ncu_report": (command(["analyze", "kernels.ncu-rep"]), "ncu_report"),
    "perfetto": (command(["analyze", "trace.pftrace"]), "perfetto"),
    "mcp": (command(NEED_THEIR_EXTRA["mcp"]), "mcp"),
    "IPython": ("import tracekit\ntracekit.load_ipython_extension", "IPython"),
}


def test_readers_and_the_notebook_say_what_to_install(tmp_path):
    cases = [([package], code) for package, (code, _) in EXTRA_OF.items()]
    every = each_without(cases, write_inputs(tmp_path))
    for (package, (_, name)), done in zip(EXTRA_OF.items(), every, strict=True):
        assert done.status == 1, package
        assert f"pip install {quoted(name)}" in done.stderr, done.stderr


def test_the_command_is_named_for_every_package_and_module(tmp_path):
    names = [package + module for package in REQUIREMENTS for module in ("", ".some.module")]
    codes = [f"from tracekit.run.environment import require\nrequire({name!r})" for name in names]
    for name, done in zip(names, without(REQUIREMENTS, codes, tmp_path), strict=True):
        package = name.partition(".")[0]
        assert f"{package} is not installed." in done.stderr
        assert f"pip install {quoted(package)}" in done.stderr


def test_requirements_are_those_of_the_project():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    stated = {each.partition(";")[0] for extra in extras.values() for each in extra}
    assert {each for needed in REQUIREMENTS.values() for each in needed} <= stated


def test_nothing_is_installed_from_the_other_project_of_this_name():
    """On PyPI, the name tracekit is another project's."""
    suffixes = {".py", ".md", ".toml", ".yml", ".txt", ".j2"}
    folders = ("analyzers", "reports", "tracekit", "docs", "examples", "benchmarks", ".github")
    pages = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in suffixes]
    pages += [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "pyproject.toml")]
    said = re.compile(r"(?<!torch-)tracekit\[[a-z]|pip install (-\S+ )*'?tracekit\b")
    assert len(pages) > 500 and not [str(path) for path in pages if said.search(path.read_text("utf-8"))]


LOADING_FAILS = {
    "raise ImportError('libcudart.so.13: cannot open shared object file')": "libcudart.so.13",
    "raise OSError('a library is damaged')": "a library is damaged",
    "import absent_dependency": "absent_dependency",
}


def test_a_package_that_cannot_be_loaded_is_no_bug(tmp_path):
    source = "from pathlib import Path\nexec(Path('torch-source').read_text())\n"
    (tmp_path / "torch.py").write_text(source)
    codes = [
        f"from pathlib import Path\nPath('torch-source').write_text({source!r})\n{command(['calibrate'])}"
        for source in LOADING_FAILS
    ]
    for said, done in zip(LOADING_FAILS.values(), without([], codes, tmp_path), strict=True):
        assert done.status == 1
        assert "torch cannot be imported." in done.stderr and said in done.stderr
        assert "Install it again" in done.stderr


def test_a_package_without_a_module_is_too_old():
    with pytest.raises(Exception, match=r"transformers \d.* has no module transformers\.nosuch"):
        require("transformers.nosuch")
