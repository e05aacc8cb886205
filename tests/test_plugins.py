"""The plug-ins of docs/plugins.md are installed as they stand there; rows and files of ops are checked."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

import tracekit
from tracekit.analyzers.core import InputError, additions
from tracekit.analyzers.cost import cost_of_signature, formula, ops_from
from tracekit.analyzers.cost.ops import costs, registry
from tracekit.cli import main

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/plugins.md").read_text("utf-8")
FILES = dict(re.findall(r"^`([^`\n]+)`:\n\n```\w+\n(.*?)^```$", PAGE, flags=re.M | re.S))
NORM = ("[[8,64],[8,64],[64]]", '["float","float","float"]')


def install(folder: Path, files: dict[str, str], groups: dict[str, dict[str, str]]) -> None:
    for name, text in files.items():
        (folder / name).write_text(text)
    about = folder / "mine-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    sections = [[f"[{group}]", *(f"{k} = {v}" for k, v in points.items())] for group, points in groups.items()]
    (about / "entry_points.txt").write_text("\n".join(line for section in sections for line in section))


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": f"{folder}:{ROOT}", "XDG_CACHE_HOME": str(folder), "PATH": "", "COLUMNS": "120"}
    return subprocess.run([sys.executable, *words], env=environment, cwd=ROOT, capture_output=True, text=True)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    install(folder, FILES, tomllib.loads(FILES["pyproject.toml"])["project"]["entry-points"])
    (folder / "kernels.csv").write_text("kernel,start_ns,duration_ns\nampere_sgemm,1000,52000\n")
    return folder


def test_commands_of_the_page(installed: Path) -> None:
    text = "".join(re.findall(r"^```console\n(.*?)^```$", PAGE, flags=re.M | re.S))
    runs = [part.splitlines() for part in re.split(r"^\$ ", text, flags=re.M)[1:]]
    assert len(runs) == 3
    for command, *expected in runs:
        words = [str(installed / word) if (installed / word).is_file() else word for word in command.split()[1:]]
        done = run(installed, "-m", "tracekit", *words)
        assert done.returncode == 0 and done.stderr == "", done.stderr
        assert all(line in done.stdout for line in expected), done.stdout


def test_ops_of_a_package(installed: Path) -> None:
    code = f"from tracekit.analyzers.cost import cost_of_signature as c\nprint(c('mylib::rms_norm', *{NORM!r}).flops)"
    code += "\nprint(c('torchvision::roi_align', '[[1,256,200,304],[512,5],[],[],[]]', "
    code += '\'["float","float","Scalar","Scalar","Scalar"]\', \'["","","0.25","7","7"]\').flops)'
    done = run(installed, "-c", code)
    assert done.stdout.split() == [str(4 * 8 * 64), str(8 * 512 * 256 * 49)], done.stderr


def test_a_reason_is_in_the_words_of_the_plug_in(installed: Path) -> None:
    trace = str(ROOT / "examples/traces/h200_gpt2_train.json.gz")
    report = installed / "report.html"
    done = run(installed, "-m", "tracekit", "analyze", trace, "--no-cache", "-o", str(report))
    assert done.returncode == 0, done.stderr
    assert "kernels that write and read masks" in report.read_text()


BROKEN = """
import tracekit.advise
class Reader:
    FORMAT = "broken"
    def sniff(self, head): raise RuntimeError("no reader")
class Broken(tracekit.advise.Optimization):
    id, title = "broken", "Broken"
    def objection(self, base): raise RuntimeError("no objection")
    def transform(self, base, outcome): return base.ops
    def reason(self, base): return ()
    def evidence(self, base): return ()
    def how_to(self, base): return ""
    def apply(self, subject): return subject
def cost(call): raise RuntimeError("no cost")
READER, OPS = Reader(), {"aten::addmm": cost, "mine::x": "no_formula(a)"}
"""


def test_a_plug_in_that_fails_costs_a_line(tmp_path: Path) -> None:
    groups = {
        "tracekit.ops": {"a": "broken:OPS", "b": "missing:OPS"},
        "tracekit.readers": {"a": "broken:READER"},
        "tracekit.optimizations": {"a": "broken:Broken", "b": "broken:OPS"},
    }
    install(tmp_path, {"broken.py": BROKEN}, groups)
    done = run(tmp_path, "-m", "tracekit", "analyze", "examples/traces/h200_gpt2_prefill.json.gz", "--no-cache")
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == len(set(lines))
    assert lines and all(line.startswith("tracekit leaves out the plug-in") for line in lines)
    assert {"no cost", "no objection"} <= {line.rpartition(": ")[2] for line in lines}
    (tmp_path / "text").write_text("nothing known")
    refused = run(tmp_path, "-m", "tracekit", "analyze", str(tmp_path / "text"))
    assert refused.returncode == 1 and "no reader" in refused.stderr and "is not a trace" in refused.stderr


def test_a_file_of_ops_counts_what_was_unknown(tmp_path: Path) -> None:
    (tmp_path / "ops.toml").write_text('"mine::norm" = "rms_norm_into(result, input, weight)"\n')
    assert cost_of_signature("mine::norm", *NORM) is None
    with ops_from(tmp_path / "ops.toml"):
        known = cost_of_signature("mine::norm", *NORM)
        assert "mine::norm" in additions()
    assert known is not None and (known.flops, known.family) == (4 * 8 * 64, "norm")
    assert cost_of_signature("mine::norm", *NORM) is None and "mine::norm" not in additions()


def test_the_option_reaches_the_analysis(tmp_path: Path) -> None:
    inputs = {"Input Dims": [[8, 64], [8, 64], [64]], "Input type": ["float"] * 3, "Concrete Inputs": [""] * 3}
    ids, at = {"correlation": 1, "External id": 1}, {"ph": "X", "pid": 1, "tid": 1}
    events = [
        {**at, "cat": "cpu_op", "name": "mine::norm", "ts": 100, "dur": 9, "args": inputs | ids},
        {**at, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 102, "dur": 3, "args": ids},
        {**at, "cat": "kernel", "name": "k", "pid": 0, "ts": 106, "dur": 4, "args": {"device": 0, "stream": 7} | ids},
    ]
    device = {"deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}], "traceEvents": events}
    trace, ops = tmp_path / "step.json", tmp_path / "ops.toml"
    trace.write_text(json.dumps(device))
    ops.write_text('"mine::norm" = "rms_norm_into(result, input, weight)"\n')
    assert tracekit.analyze(trace).coverage.cost == 0
    command = ["analyze", str(trace), "--no-cache", "--format", "json", "--ops-file", str(ops)]
    ran = CliRunner().invoke(main, command)
    assert ran.exit_code == 0, ran.output
    assert json.loads(ran.stdout)["coverage"]["cost"] == 1


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ('"rms_norm_int(input)"', "is not a formula"),
        ('"rms_norm_into(input)"', "needs its input 'weight'"),
        ('"rms_norm_into(x, input, weight)"', "has no input 'x'"),
        ('"elementwise(input, input)"', "is there twice"),
        ('"each_once(family=everything)"', "Invalid enum value"),
        ('"each_once(flops=1e9)"', "is not an input"),
        ('"__import__(os)"', "is not a formula"),
        ('"elementwise(input" ', "is not of the form"),
        ("7", "A row is a text"),
        (f'"elementwise({"_, " * 200})"', "A row is a text"),
    ],
)
def test_a_row_that_is_none_is_refused(row: str, why: str, tmp_path: Path) -> None:
    file = tmp_path / "ops.toml"
    file.write_text(f'"mine::op" = {row}\n')
    with pytest.raises(InputError, match=why), ops_from(file):
        pass
    ran = CliRunner().invoke(main, ["predict", str(ROOT / "examples/x"), "--ops-file", str(file)])
    assert ran.exit_code == 1 and "mine::op" in ran.output


def test_rows_of_tracekit_itself_have_the_types_of_their_formulas() -> None:
    for name, row in tomllib.loads((ROOT / "analyzers/cost/ops/ops.toml").read_text()).items():
        known, bound = registry.parsed(row)
        costs._typed(known, bound)
        assert all(each in registry.FORMULAS for each in registry._alternatives(name))


def test_two_formulas_of_one_name_are_refused() -> None:
    def rotary() -> None: ...

    with pytest.raises(registry.DuplicateFormulaError):
        formula(rotary)
