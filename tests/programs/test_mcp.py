"""The tools of `tracekit mcp`: what they may read and what they answer, in this process and over stdio."""

import asyncio
import json
import shutil
import sys
from pathlib import Path

import pytest
from tiny_models import write_model
from tiny_runs import write_run

from tracekit.agents import Roots, Tools, install, server, text
from tracekit.analyzers.core import InputError, TracekitError, UnknownNameError
from tracekit.run import FILES, folder

SWEEP = {"model": "tiny", "gpus": ["t4"], "batch_sizes": [1], "seq_lens": [16], "apply": ["half-precision"]}
RANKS = Path(__file__).parents[2] / "examples/ranks/healthy-1-2"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Return a folder with traces, a baseline, and links that lead out of it."""
    outside = tmp_path_factory.mktemp("outside")
    write_run(outside / "secret.json")
    root = tmp_path_factory.mktemp("root")
    for number in range(3):
        write_run(root / f"base-{number}.json")
    write_run(root / "item.json", scalar_read=True)
    (root / ".git").mkdir()
    (root / "link.json").symlink_to(outside / "secret.json")
    (root / "folder").symlink_to(outside, target_is_directory=True)
    (root / "run").mkdir()
    (root / "run/trace.json.gz").symlink_to(outside / "secret.json")
    (root / "loop.json").symlink_to(root / "loop.json")
    write_model(root / "tiny", "gpt2")
    shutil.copytree(RANKS, root / "job")
    return root


@pytest.fixture(scope="module")
def tools(root):
    return Tools(Roots.of([root]), allow_write=True)


@pytest.mark.parametrize(
    "path",
    [
        *("link.json", "folder/secret.json", "run", "../outside0/secret.json", "/etc/passwd", "loop.json/x"),
        *("https://x.org/a.json", "s3://bucket/key", "-", "", "a\0b", "\ud800"),
    ],
)
def test_nothing_outside_the_roots_is_read(tools, path):
    with pytest.raises(InputError, match=r"cannot be read|cannot be used"):
        tools.analyze(path)


@pytest.mark.parametrize("name", [*FILES, "deeper/trace.json.gz"])
@pytest.mark.parametrize("file", ["", "/trace.json.gz"])
def test_no_file_of_a_run_leads_out(tmp_path, name, file):
    """Those of the folder, and those that are read beside the trace if only the trace is named."""
    run, outside = tmp_path / "root/run", tmp_path / "outside.json"
    (run / name).parent.mkdir(parents=True)
    write_run(run / "trace.json.gz")
    write_run(outside)
    if name == "trace.json.gz":
        (run / name).unlink()
    tools = Tools(Roots.of([tmp_path / "root"]))
    (run / name).symlink_to(outside)
    if file and "/" in name:
        assert tools.analyze(f"run{file}")
        return
    with pytest.raises(InputError, match=r"leads out of|inside the folders"):
        tools.analyze(f"run{file}")


def test_a_baseline_that_leads_out_is_not_read(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    for name in ("a.json", "b.json", "../c.json"):
        write_run(root / name)
    tools = Tools(Roots.of([root]), allow_write=True)
    tools.save_baseline("mine", ["a.json"])
    (root / ".tracekit/baselines/other.json").symlink_to(tmp_path / "c.json")
    for against in ("mine", "other"):
        with pytest.raises(InputError, match="leads out of"):
            tools.check(["b.json"], [against])


def test_each_file_of_a_run_is_known():
    named = {value for name, value in vars(folder).items() if name.isupper() and isinstance(value, str)}
    assert named - set(folder._SUFFIXES) == set(FILES)


def test_a_folder_of_ranks_with_a_link_that_leads_out_is_not_read(tools):
    with pytest.raises(InputError, match="leads out of the given folders"):
        tools.ranks(".")


def test_what_is_inside_is_read(tools, root):
    assert tools.analyze("base-0.json")["source"]["device"] == "h100-sxm"
    assert tools.analyze(str(root / "base-0.json"))["untrusted"]
    assert tools.show("base-0.json", "layer:model.up")["row"]["path"] == "model.up"


def test_a_check_names_baselines_and_finds_what_was_planted(tools):
    tools.save_baseline("main", [f"base-{number}.json" for number in range(3)])
    answer = tools.check(["item.json"], ["main"])
    assert answer["outcome"] == "regressed"
    assert "counter scalar-reads" in [each["what"] for each in answer["culprits"]]
    assert tools.check(["base-1.json"], ["base-0.json"], counters_only=True)["outcome"] == "pass"
    with pytest.raises(InputError, match="Baselines: main"):
        tools.check(["item.json"], ["mian"])


@pytest.mark.parametrize(
    ("tool", "arguments", "why"),
    [
        ("check", ([], []), "No run is named"),
        ("check", (["item.json"], []), "nothing to check"),
        ("check", (["item.json"], ["main", "base-0.json"]), "neither a baseline nor a run|one of several"),
        ("check", (["item.json", "./item.json"], ["base-0.json"]), "named twice"),
        ("check", (["text.json"], ["base-0.json"]), "not a trace"),
        ("save_baseline", ("x", []), "No run is named"),
        ("save_baseline", ("../x", ["base-0.json"]), "cannot be the name"),
        ("compare", ("base-0.json", "nothere"), "does not exist"),
        ("predict", ("base-0.json", "", "t5"), "not known"),
        ("predict", ("base-0.json", "", "", -1), "is not a batch size"),
        ("ranks", ("base-0.json",), "A single rank waits for no other"),
        ("ranks", ("empty",), "contains no traces"),
        ("show", ("base-0.json", ""), "has no row"),
        ("analyze", ("empty",), "without a trace"),
    ],
)
def test_wrong_uses_of_tools(tools, root, tool, arguments, why):
    (root / "empty").mkdir(exist_ok=True)
    (root / "text.json").write_text("hello")
    with pytest.raises(TracekitError, match=why):
        getattr(tools, tool)(*arguments)


def test_a_server_that_only_reads_saves_nothing(root):
    with pytest.raises(InputError, match="only reads"):
        Tools(Roots.of([root])).save_baseline("other", ["base-0.json"])
    assert not (root / ".tracekit/baselines/other.json").exists()


def test_compare_and_unknown_names(tools):
    assert tools.compare("base-0.json", "item.json")["a"]["name"] == "base-0.json"
    with pytest.raises(UnknownNameError):
        tools.predict("base-0.json", apply="no-such-thing")
    with pytest.raises(InputError, match="is not a folder"):
        Roots.of(["/nowhere/at/all"])


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"model": "someone/something"}, "It is not bundled"),
        ({"model": "/etc"}, "not a path inside"),
        ({"model": ""}, "no model"),
        ({"model": "run"}, "leads out|not bundled|cannot be read"),
        ({"gpus": ["t5"]}, "t5"),
        ({"gpus": []}, "No GPU"),
        ({"batch_sizes": [0]}, "impossible size"),
        ({"batch_sizes": list(range(1, 99))}, "has 98 points"),
        ({"workload": "dance"}, "no workload"),
        ({"apply": ["no-such-thing"]}, "no-such-thing"),
    ],
)
def test_sweeps_that_cannot_be_made(tools, changes, why):
    with pytest.raises(TracekitError, match=why):
        tools.sweep(**{"model": "tiny", "gpus": ["t4"], "batch_sizes": [1]} | changes)


def test_the_skill_is_installed_and_no_other_file_replaced(tmp_path):
    path = install(tmp_path)
    assert path.read_text() == text()
    assert path == install(tmp_path)
    path.write_text("mine")
    with pytest.raises(Exception, match="is not tracekit's"):
        install(tmp_path)
    assert path.read_text() == "mine"


def test_the_commands_of_the_skill_exist():
    import re

    from tracekit.cli import main

    for words in re.findall(r"`tracekit ([^`]+)`", text()):
        name, *options = words.split()
        command = main.get_command(None, name)
        assert command, words
        known = {option for parameter in command.params for option in parameter.opts}
        assert name == "run" or {word for word in options if word.startswith("--")} <= known, words


@pytest.fixture(scope="module")
def mcp():
    """Import the package before a test captures the standard error, which it keeps."""
    return pytest.importorskip("mcp")


def test_a_client_is_answered_and_nothing_else_is_printed(mcp, tools, capfd):
    async def talk():
        async with mcp.Client(server(tools)) as client:
            refused = await client.call_tool("analyze", {"trace": "link.json"})
            swept = await client.call_tool("sweep", SWEEP)
            checked = await client.call_tool("check", {"runs": ["item.json"], "against": ["base-0.json"]})
            ranked = await client.call_tool("ranks", {"folder": "job"})
            wrong = await client.call_tool("sweep", {**SWEEP, "gpus": "t4"})
            return refused, swept, checked, ranked, wrong

    refused, swept, checked, ranked, wrong = asyncio.run(talk())
    assert capfd.readouterr().out == "", "standard output is the protocol's"
    points = json.loads(swept.content[0].text)["points"]
    assert [(point["gpu"], point["apply"]) for point in points] == [("t4", "none"), ("t4", "half-precision")]
    assert all(0 < point["latency_low_us"] <= point["latency_high_us"] for point in points)
    assert json.loads(checked.content[0].text)["outcome"] == "regressed"
    assert len(json.loads(ranked.content[0].text)["ranks"]) == 2
    assert wrong.is_error and "gpus" in wrong.content[0].text
    assert refused.is_error
    assert "not a path inside the folders" in refused.content[0].text


@pytest.mark.slow
def test_a_client_over_stdio(mcp, root):
    stdio = pytest.importorskip("mcp.client.stdio")
    command = stdio.StdioServerParameters(
        command=sys.executable, args=["-m", "tracekit", "mcp", "--root", str(root)], cwd=str(root)
    )

    async def talk():
        async with mcp.Client(command, read_timeout_seconds=120) as client:
            return (await client.list_tools()).tools, await client.call_tool("analyze", {"trace": "base-0.json"})

    listed, told = asyncio.run(talk())
    assert {tool.name for tool in listed} == {"analyze", "show", "predict", "sweep", "compare", "check", "ranks"}
    assert all(tool.annotations.read_only_hint for tool in listed)
    assert not told.is_error
    assert json.loads(told.content[0].text)["source"]["device"] == "h100-sxm"
