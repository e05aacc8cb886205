"""`tracekit check` and its baselines, from traces to verdicts."""

import json
import re
from xml.etree import ElementTree as Xml

import pytest
from click.testing import CliRunner
from tiny_runs import GPU, write_run

from tracekit.check import baseline_file, false_alarms
from tracekit.cli import main


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a repository with traces of three runs of a program, and one for each change to it."""
    folder = tmp_path_factory.mktemp("repository")
    (folder / "train.py").write_text("pass\n" * 60)
    for number, drift in enumerate((1.0, 1.002, 0.997, 1.001, 0.999, 1.003)):
        write_run(folder / f"base-{number}.json", drift=drift)
        write_run(folder / f"slow-{number}.json", drift=drift, slow={"model.down": 1.1})
    write_run(folder / "item.json", scalar_read=True)
    write_run(folder / "more.json", extra_kernels=1)
    write_run(folder / "compiled.json", breaks=1)
    write_run(folder / "broken.json", breaks=3)
    write_run(folder / "other.json", gpu="NVIDIA A100-SXM4-80GB")
    write_run(folder / "hostile.json", extra_kernels=1, parts=("model.up", "model.down"))
    return folder


@pytest.fixture(scope="module")
def main_baseline(folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        base = [f"base-{number}.json" for number in range(3)]
        answer = CliRunner().invoke(main, ["check", *base, "--save", "main"])
        assert answer.exit_code == 0, answer.output
        assert CliRunner().invoke(main, ["check", "compiled.json", "--save", "compiled"]).exit_code == 0
    return folder / ".tracekit/baselines/main.json"


@pytest.fixture
def tracekit(folder, main_baseline, monkeypatch):
    """Return the command, run in the repository, whose baselines are saved."""
    assert main_baseline.is_file()
    monkeypatch.chdir(folder)
    return lambda *words: CliRunner().invoke(main, list(words))


def test_a_baseline_is_a_small_file_with_its_fingerprint(tracekit, main_baseline):
    held = json.loads(main_baseline.read_text())
    assert main_baseline.stat().st_size < 30_000
    assert held["fingerprint"]["gpu"] == "h100-sxm"
    assert held["counters"]["kernels"] == [3.0]
    assert str(main_baseline.parents[2]) not in main_baseline.read_text()
    assert "main" in tracekit("check", "--list").output
    shown = tracekit("check", "--show", "main").output
    assert "gpu: h100-sxm" in shown
    assert "kernels: 3" in shown


def test_a_baseline_explains_differences_like_the_trace_that_it_is_of(folder, main_baseline):
    from tracekit.analyzers.compare import compare_summaries
    from tracekit.check.run_values import recorded

    held = baseline_file.read("main", main_baseline.parent)
    kept = baseline_file.as_recorded(held, main_baseline).step
    traced = recorded([folder / f"base-{number}.json" for number in range(3)]).step
    other = recorded([folder / "more.json"]).step
    one, two = compare_summaries(kept, other), compare_summaries(traced, other)
    assert one.change_ns == pytest.approx(two.change_ns, rel=1e-6)
    assert one.layers["change_ns"].tolist() == pytest.approx(two.layers["change_ns"].tolist(), abs=0.01)
    assert one.ops["b_name"].tolist() == two.ops["b_name"].tolist()


def test_unchanged_runs_pass_and_a_slower_layer_is_named(tracekit):
    same = tracekit("check", *(f"base-{number}.json" for number in (3, 4, 5)), "--against", "main")
    assert same.exit_code == 0, same.output
    slow = tracekit("check", *(f"slow-{number}.json" for number in (3, 4, 5)), "--against", "main", "--format", "json")
    assert slow.exit_code == 1
    verdict = json.loads(slow.output)
    assert verdict["basis"] == "runs"
    assert "layer model.down" in [culprit["what"] for culprit in verdict["culprits"]]
    assert all(counter["outcome"] == "pass" for counter in verdict["counters"])


def test_one_run_is_not_enough_for_a_verdict_on_times(tracekit):
    alone = tracekit("check", "base-3.json", "--against", "base-0.json")
    assert alone.exit_code == 3
    assert "a standard deviation of 5 % between runs is assumed" in " ".join(alone.output.split())


def test_a_planted_scalar_read_is_found_with_its_line(tracekit):
    answer = tracekit("check", "item.json", "--against", "base-0.json", "--format", "github")
    assert answer.exit_code == 1
    read = next(line for line in answer.output.splitlines() if "counter scalar-reads" in line)
    assert read.startswith("::error file=train.py,line=40,title=tracekit check%3A counter scalar-reads::")
    assert "scalar-reads 0 → 1" in read


def test_a_planted_graph_break_is_found(tracekit):
    answer = tracekit("check", "broken.json", "--against", "compiled")
    assert answer.exit_code == 1
    assert "graph-breaks 1 → 3" in answer.output


def test_more_launches_regress_and_can_be_allowed(tracekit, folder):
    answer = tracekit("check", "more.json", "--against", "main", "--only", "counters")
    assert answer.exit_code == 1
    assert "launches 3 → 4: layer model.up, aten::mm" in " ".join(answer.output.split())
    settings = folder / "tracekit.toml"
    settings.write_text('[check]\nignore = ["flops", "bytes"]\n[check.counters]\nkernels = 0.5\nlaunches = 0.5\n')
    try:
        assert tracekit("check", "more.json", "--against", "main", "--only", "counters").exit_code == 0
        settings.write_text("[check.budget.counters]\nkernels = 3\n")
        over = tracekit("check", "more.json")
        assert over.exit_code == 1
        assert "kernels 4 of 3" in over.output
        settings.write_text("[check]\nmargin = 2\n")
        assert "margin between 0 and 1" in tracekit("check", "more.json", "--against", "main").output
        settings.write_text("[check]\nmarginn = 0.1\n")
        assert "marginn" in tracekit("check", "more.json", "--against", "main").output
        settings.write_text('[check]\nignore = ["flopz"]\n')
        assert "'flopz' is not a counter" in tracekit("check", "more.json", "--against", "main").output
    finally:
        settings.unlink()


def test_an_improvement_annotates_no_error(tracekit, folder):
    faster = {"model.up": 0.5, "model.norm": 1.2}
    for number, drift in enumerate((1.0, 1.002, 0.997)):
        write_run(folder / f"faster-{number}.json", drift=drift, slow=faster)
    runs = [f"faster-{number}.json" for number in range(3)]
    answer = tracekit("check", *runs, "--against", "main", "--format", "github", "-o", "faster.xml")
    assert answer.exit_code == 0, answer.output
    assert answer.output.startswith("::notice title=tracekit check%3A improved::")
    assert "::error" not in answer.output
    assert Xml.parse(folder / "faster.xml").getroot().get("failures") == "0"


def test_unlike_fingerprints_are_refused_or_compared_by_counters_alone(tracekit):
    refused = tracekit("check", "other.json", "--against", "main")
    assert refused.exit_code == 4
    assert "device NVIDIA H100 80GB HBM3 and NVIDIA A100-SXM4-80GB" in refused.output
    assert "--only counters" in refused.output
    counted = tracekit("check", "other.json", "--against", "main", "--only", "counters")
    assert counted.exit_code == 0
    assert "Only counters are compared: " in counted.output
    accepted = tracekit("check", "other.json", "--against", "main", "--accept", "gpu", "--accept", "device")
    assert "Compared in spite of: " in accepted.output


def test_files_for_other_programs(tracekit, tmp_path):
    files = {kind: tmp_path / f"check.{kind}" for kind in ("md", "sarif", "xml", "json", "txt")}
    options = [word for path in files.values() for word in ("-o", str(path))]
    assert tracekit("check", "item.json", "--against", "main", *options).exit_code == 1
    comment = files["md"].read_text()
    assert comment.startswith("<!-- tracekit check main -->")
    sarif = json.loads(files["sarif"].read_text())["runs"][0]
    results = {each["ruleId"]: each for each in sarif["results"]}
    assert set(results) <= {rule["id"] for rule in sarif["tool"]["driver"]["rules"]}
    places = [each["locations"][0]["physicalLocation"] for each in sarif["results"] if "locations" in each]
    assert {"artifactLocation": {"uri": "train.py"}, "region": {"startLine": 40}} in places
    suite = Xml.parse(files["xml"]).getroot()
    failed = [case.get("name") for case in suite.iter("testcase") if case.find("failure") is not None]
    assert "counter scalar-reads" in failed
    assert int(suite.get("failures")) == len(failed)
    assert json.loads(files["json"].read_text())["outcome"] == "regressed"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--against", "nowhere"), r"no baseline 'nowhere'.*Baselines there:.* compiled, main.*--save nowhere"),
        (("--against", "../../etc/passwd"), r"cannot be the name of a baseline"),
        ((), r"nothing to check.*--against"),
    ],
)
def test_what_cannot_be_checked_is_explained(tracekit, words, said):
    answer = tracekit("check", "base-0.json", *words)
    assert answer.exit_code == 2
    assert re.search(said, " ".join(answer.output.split())), answer.output


def test_wrong_use(tracekit):
    assert tracekit("check").exit_code == 2


@pytest.mark.parametrize("damage", ["truncated", "garbage", "version", "table"])
def test_a_damaged_baseline_is_explained_and_stays(tracekit, main_baseline, damage):
    whole = main_baseline.read_text()
    path = main_baseline.with_name(f"damaged-{damage}.json")
    held = json.loads(whole)
    held["step"]["work"]["columns"]["layer"] = [999] * len(held["step"]["work"]["columns"]["layer"])
    path.write_text(
        {
            "truncated": whole[: len(whole) // 2],
            "garbage": "\x00\xff{",
            "version": whole.replace('"tracekit_baseline": 1', '"tracekit_baseline": 9'),
            "table": json.dumps(held),
        }[damage]
    )
    kept = path.read_bytes()
    answer = tracekit("check", "base-0.json", "--against", path.stem)
    path.unlink()
    assert answer.exit_code == 2
    assert "cannot be read" in answer.output
    assert "save it again" in " ".join(answer.output.split())
    assert "bug" not in answer.output
    assert kept


def test_runs_of_different_things_are_no_repeats(tracekit):
    answer = tracekit("check", "base-0.json", "other.json", "--against", "main")
    assert answer.exit_code == 2
    assert "is not another run of base-0.json" in answer.output


@pytest.mark.parametrize("options", [(), ("--only", "counters")])
def test_a_check_of_a_modelled_run_is_recorded(tracekit, folder, options):
    capture = {"version": "1", "source": "modelled", "device": "model", "gpu": "h100-sxm", "device_name": GPU}
    trace = json.loads((folder / "base-0.json").read_text()) | {"tracekit": capture}
    (folder / "modelled.json").write_text(json.dumps(trace))
    assert tracekit("check", "modelled.json", "--save", "modelled").exit_code == 0
    answer = tracekit("check", "modelled.json", "--against", "modelled", "--record", *options)
    assert answer.exit_code == 0, answer.output
    lines = (folder / ".tracekit/baselines/modelled.history.jsonl").read_text().splitlines()
    points = [json.loads(line) for line in lines]
    assert points[-1]["what"] == "pass"
    assert points[-1]["latency_us"] == pytest.approx(points[0]["latency_us"], rel=1e-3)


def test_history_with_a_change_of_level(tracekit, folder):
    tracekit("check", "base-0.json", "--save", "changing")
    tracekit("check", "slow-1.json", "--against", "changing", "--record")
    file = folder / ".tracekit/baselines/changing.history.jsonl"
    before, after = file.read_text().splitlines()
    file.write_text("\n".join([before] * 6 + [after] * 6) + "\n")
    text = tracekit("check", "--history", "changing").output
    assert "12 points, 1 change of level" in text
    assert tracekit("check", "--history", "changing", "-o", "history.html").exit_code == 0
    page = (folder / "history.html").read_text()
    assert page.count("<circle") == 12
    assert not re.findall(r"(?:src|href)=.?https?:", page)
    assert tracekit("check", "--history", "unknown").exit_code == 2
    sound = file.read_text()
    for line in ("broken", '{"a":' + "[" * 100_000, before.replace('"latency_us":', '"latency_us":-')):
        file.write_text(f"{sound}{line}\n")
        assert "Line 13 is not an entry of a history" in tracekit("check", "--history", "changing").output


def test_the_self_test_of_given_runs(tracekit):
    answer = tracekit("check", "--self-test", *(f"base-{number}.json" for number in range(6)))
    assert answer.exit_code == 0, answer.output
    assert re.search(r"false alarms: \d+ of the 300 \(", answer.output)
    few = tracekit("check", "--self-test", "base-0.json")
    assert "It needs 6 runs" in few.output


def test_a_self_test_without_verdicts_is_no_absence_of_false_alarms(tracekit, folder):
    names = [f"noisy-{number}.json" for number in range(6)]
    for name, drift in zip(names, (1.0, 1.7, 0.6, 1.3, 2.1, 0.8), strict=True):
        write_run(folder / name, drift=drift)
    answer = tracekit("check", "--self-test", *names)
    assert answer.exit_code == 3
    assert "Inconclusive: " in answer.output
    assert "confidence" not in answer.output


WORK = """import json, sys
assert sys.argv[1:3] == ["20", "cuda"] and open(sys.argv[3], "w")
print(json.dumps([[100.0 + step for step in range(20)] for part in range(2)]))
"""


def test_the_self_test_on_a_gpu(tracekit, tmp_path, monkeypatch):
    work = tmp_path / "work.py"
    work.write_text(WORK)
    monkeypatch.setattr(false_alarms, "_WORK", work)
    first, second = false_alarms.timed_runs("cuda", 2)
    assert first == second and first.steps_ns[:2] == [200.0, 202.0]
    work.write_text("raise SystemExit('RuntimeError: Found no NVIDIA driver')")
    failed = tracekit("check", "--self-test", "--device", "cuda")
    assert failed.exit_code == 2
    assert "Found no NVIDIA driver" in failed.output and "without --device" in failed.output


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["check", "base-0.json", "--against", ""], 2, "--against is empty"),
        (["check", "base-0.json", "./base-0.json", "--against", "main"], 2, "is named twice"),
        (["check", "base-0.json", "--against", "main", "--against", "base-1.json"], 2, "cannot be one of several runs"),
        (["check", "base-0.json", "--against", "main", "--accept", "gpus"], 2, "It is not an entry of a fingerprint"),
        (["check", "base-0.json", "--record"], 2, "name one with --against"),
        (["check", "base-0.json", "--against", "base-1.json", "--record"], 2, "'base-1.json' is not a baseline"),
        (["check", "base-0.json", "--against", "main", "-o", "base-1.json/x.json"], 2, "base-1.json"),
        (["check", "text.json", "--against", "main"], 2, "is not a trace that tracekit reads"),
        (["check", "cut.json", "--against", "main"], 2, "It is cut off"),
        (["check", "base-0.json", "--against", "damaged"], 2, "Restore it, or save it again"),
        (["check", "other.json", "--save", "main"], 2, "replace it with --force"),
        (["check", "base-0.json", "--save", "../evil"], 2, "cannot be the name"),
        (["check", "base-0.json", "other.json", "--save", "mixed"], 2, "is not another run"),
        (["check", "--show", "nothere"], 2, "Baselines there: "),
        (["check", "--history", "main", "--counter", "lunches"], 2, "Its counters are "),
        (["check", "--history", "../main"], 2, "cannot be the name"),
        (["analyze", "base-0.json", "--row", "layer:"], 1, "The nearest are layer:model"),
        (["analyze", "base-0.json", "--row", "step:99999999999999999999"], 1, "has no row"),
        (["analyze", "text.json", "--row", "layer:x"], 1, "is not a trace"),
        (["mcp", "--root", "nothere"], 1, "It is not a folder"),
    ],
)
def test_wrong_uses_are_told_what_why_and_what_to_try(tracekit, folder, main_baseline, words, status, said):
    (folder / "text.json").write_text("hello")
    (folder / "cut.json").write_text((folder / "base-0.json").read_text()[:200])
    damaged = main_baseline.with_name("damaged.json")
    damaged.write_text(main_baseline.read_text()[:900])
    before = main_baseline.read_bytes()
    answer = tracekit(*words)
    damaged.unlink()
    assert (answer.exit_code, said in answer.output) == (status, True), answer.output
    assert "Traceback" not in answer.output
    assert main_baseline.read_bytes() == before


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("step.work.columns.flops", 10**400),
        ("step.work.columns.ns", 1e300),
        ("step.work.columns.layer", 2**70),
        ("step.work.columns.kernel", -7),
        ("step.work.columns.kernel", 999),
        ("step.layers.columns.type", {"a": 1}),
        ("step.layers.columns.parent", 1),
        ("counters.kernels", []),
        ("fingerprint.kind", "another"),
        ("fingerprint.gpu", 10**400),
        ("runs", []),
        ("runs.0.steps_ns", []),
        ("runs.0.unprofiled", {"median_us": 1.0, "p10_us": 0.0, "p90_us": 1.0, "samples": 9}),
        ("step.wall_ns", -1.0),
        ("step.steps", 0),
        ("step.idle", {"launch": -5.0}),
    ],
)
def test_a_tampered_baseline_is_refused(tracekit, main_baseline, place, value):
    held = json.loads(main_baseline.read_text())
    *path, last = place.split(".")
    table = held
    for name in path:
        table = table[int(name) if name.isdigit() else name]
    in_a_column = "columns" in path and table[last]
    table[last] = [value, *table[last][1:]] if in_a_column else value
    tampered = main_baseline.with_name("tampered.json")
    tampered.write_text(json.dumps(held))
    answer = tracekit("check", "base-0.json", "--against", "tampered")
    tampered.unlink()
    assert answer.exit_code == 2, answer.output
    assert "tampered.json cannot be read" in answer.output and "save it again" in answer.output


def test_a_damaged_baseline_hides_no_other(tracekit, main_baseline):
    damaged = main_baseline.with_name("damaged.json")
    damaged.write_text(main_baseline.read_text()[:900])
    listed = tracekit("check", "--list")
    damaged.unlink()
    assert listed.exit_code == 0
    assert "main" in listed.output and "damaged" in listed.output and "cannot be read" in listed.output


def test_a_baseline_of_another_gpu_is_replaced_only_by_force(tracekit):
    assert tracekit("check", "base-0.json", "--save", "again").exit_code == 0
    assert tracekit("check", "base-1.json", "--save", "again").exit_code == 0
    assert "They differ: device" in tracekit("check", "other.json", "--save", "again").output
    assert tracekit("check", "other.json", "--save", "again", "--force").exit_code == 0
