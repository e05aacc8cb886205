"""Names and numbers of a graph become constants of a written file, never code; damaged graphs are refused."""

import ast
import gzip
import json
import random
from collections import defaultdict
from contextlib import suppress

import msgspec
import pytest

from tracekit.analyzers.core import InputError
from tracekit.analyzers.cost import hardware
from tracekit.analyzers.fuse import graph as graphs
from tracekit.analyzers.fuse import plan
from tracekit.fuse import pointwise, run_kernels
from tracekit.fuse.catalogue import TEMPLATES
from tracekit.fuse.writing import Written, text
from tracekit.run import GRAPH

H100 = hardware.find("h100")
HOSTILE = (
    "x',__import__('os').mkdir('EXECUTED'),'z",
    'x",__import__("os").mkdir("EXECUTED"),"z',
    '"""\n__import__("os").mkdir("EXECUTED")\n"""',
    "'''\r\nimport os\r\n'''",
    "\\",
    "\\'",
    "a\\\nb",
    ")\nimport os\nLAYERS = (",
    "# end of the body",
    "{x} %s \\N{DIGIT ONE} \\x41",
    "\u202eevil\u2066",
    "\x00\x1b[2J\u2028\x85",
    "\ud800",
    "",
)


def skeleton(source):
    """Return a module's tree without the values of its constants and of its docstring."""
    tree = ast.parse(source)
    tree.body[0].value.value = ""
    for each in (each for each in tree.body if isinstance(each, ast.Assign)):
        with suppress(ValueError):
            ast.literal_eval(each.value)
            each.value = ast.Constant("")
    return ast.dump(tree)


def constants(source):
    assigned = [each for each in ast.parse(source).body if isinstance(each, ast.Assign)]
    settable = [each for each in assigned if not isinstance(each.value, ast.BinOp) and each.targets[0].id != "DTYPES"]
    return {each.targets[0].id: each.value for each in settable}


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("hostile", HOSTILE)
def test_only_constants_differ_from_the_template(name, hostile):
    plain = text(Written(name))
    values = {each: (hostile, (hostile, 1)) for each in constants(plain) if each not in ("CONFIG", "CONFIGS")}
    launches = ({"num_warps": 4, hostile: 1},)
    written = text(Written(name, values, launches if "CONFIGS" in constants(plain) else (), (hostile, f'{hostile}"')))
    assert written.isascii()
    assert skeleton(written) == skeleton(plain)
    assert all(ast.literal_eval(constants(written)[each]) == value for each, value in values.items())
    assert hostile in ast.get_docstring(ast.parse(written), clean=False)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), [1], type("S", (str,), {})("x"), 1j])
def test_what_is_no_plain_value_is_no_constant(value):
    with pytest.raises(InputError, match="cannot be a constant"):
        text(Written("add_norm", {"EPSILON": value}))


def sources(graph):
    rows = [row for row in plan(graph, H100) if row.template]
    return [text(run_kernels._described(number, row, H100)) for number, row in enumerate(rows, 1)]


@pytest.mark.parametrize("hostile", [each for each in HOSTILE if each and each.isascii()])
def test_hostile_names_of_modules_leave_the_files_as_they_are(llama, hostile):
    """Modules and their classes get other names, the same ones for the same."""
    graph = llama[1]
    leaves = {"mlp", "gate_proj", "q_proj", "self_attn", "input_layernorm", "norm"}

    def renamed(path):
        return ".".join(hostile.replace(".", "") + each if each in leaves else each for each in path.split("."))

    layers = tuple((renamed(path), hostile + kind if kind != "Linear" else kind) for path, kind in graph.layers)
    changed = msgspec.structs.replace(graph, layers=layers, composite=tuple(map(renamed, graph.composite)))
    expected, written = sources(graph), sources(changed)
    assert len(expected) == len(written) > 3
    assert list(map(skeleton, written)) == list(map(skeleton, expected))


def test_a_class_that_is_code_is_not_executed(llama, tmp_path, monkeypatch):
    pytest.importorskip("triton")
    monkeypatch.chdir(tmp_path)
    layers = tuple((path, HOSTILE[0] if kind == "LlamaMLP" else kind) for path, kind in llama[1].layers)
    rows = plan(msgspec.structs.replace(llama[1], layers=layers), H100)
    number = next(i for i, row in enumerate(rows, 1) if row.template == "gated_activation")
    (result,) = run_kernels.write_rows(rows, H100, [number], tmp_path / "kernels", trains=False)
    assert not result.why
    assert result.path.is_file()
    assert not (tmp_path / "EXECUTED").exists()


def test_names_in_generated_code_are_identifiers():
    with pytest.raises(ValueError, match="is not an identifier"):
        pointwise._function("_body", ["x): evil("], [], [ast.Name("x")])


def test_an_infinite_number_is_no_code(llama):
    row = next(row for row in plan(llama[1], H100) if row.template == "gated_activation")
    group = row.first.group
    nodes = list(group.graph.nodes)
    last = nodes[group.nodes[-1]]
    nodes[group.nodes[-1]] = msgspec.structs.replace(last, inputs=last.inputs[:1], numbers=(float("inf"),))
    group = type(group)(msgspec.structs.replace(group.graph, nodes=tuple(nodes)), group.nodes)
    with pytest.raises(InputError, match="not finite"):
        pointwise.body(group, ("gate", "up")[: len(group.inputs)], "_gradients")


def test_graphs_whose_numbers_refer_to_nothing_are_refused(llama, tmp_path):
    plain = json.loads(msgspec.json.encode(llama[1]))

    def refused(change):
        document = json.loads(json.dumps(plain))
        change(document)
        (tmp_path / GRAPH).write_bytes(gzip.compress(json.dumps(document).encode()))
        with pytest.raises(InputError, match="cannot be read"):
            graphs.read(tmp_path / GRAPH)

    refused(lambda d: d["nodes"][3].__setitem__(0, len(d["calls"])))
    refused(lambda d: d["nodes"][3].__setitem__(1, -1))
    refused(lambda d: d["nodes"][3].__setitem__(3, [99_999_999]))
    refused(lambda d: d["nodes"][3].__setitem__(4, d["nodes"][2][4]))
    refused(lambda d: d["nodes"][3].__setitem__(6, 10**9))
    refused(lambda d: d["tensors"]["0"].__setitem__(0, [2**62, 2**62]))
    refused(lambda d: d["tensors"]["0"].__setitem__(0, [-1]))
    refused(lambda d: d["calls"][0].__setitem__(3, "no list"))
    refused(lambda d: d["layers"].clear())


@pytest.mark.parametrize("place", [3, 4], ids=["inputs", "outputs"])
def test_ops_without_tensors_are_in_no_group(llama, place):
    plain = json.loads(msgspec.json.encode(llama[1]))
    for i in range(len(plain["nodes"])):
        document = {**plain, "nodes": [[*each] for each in plain["nodes"]]}
        document["nodes"][i][place] = []
        plan(graphs.decode(json.dumps(document).encode()), H100)


@pytest.mark.parametrize("strides", ["[]", "[5]", "[[]]", "[[[]]]"])
def test_calls_without_strides_give_a_plan(llama, strides):
    document = json.loads(msgspec.json.encode(llama[1]))
    for call in document["calls"]:
        call[3] = strides
    assert plan(graphs.decode(json.dumps(document).encode()), H100)


def test_a_graph_that_becomes_large_is_refused(llama, tmp_path, monkeypatch):
    data = msgspec.json.encode(llama[1])
    monkeypatch.setenv("TRACEKIT_LIMIT_DOCUMENT", str(len(data)))
    (tmp_path / GRAPH).write_bytes(gzip.compress(data + b" " * len(data)))
    with pytest.raises(InputError, match=r"more than [\d,]+ bytes.*TRACEKIT_LIMIT_DOCUMENT"):
        graphs.read(tmp_path / GRAPH)


def test_mutated_graphs_give_a_plan_or_an_input_error(llama):
    """Numbers are swapped and replaced within their kind, so that most of them still decode."""
    plain = json.loads(msgspec.json.encode(llama[1]))
    outcomes = defaultdict(int)
    for seed in range(150):
        drawn, document = random.Random(seed), json.loads(json.dumps(plain))
        for _ in range(drawn.choice([1, 3, 30])):
            _mutate(drawn, document)
        try:
            outcomes["planned"] += bool(sources(graphs.decode(json.dumps(document).encode())))
        except (ValueError, msgspec.DecodeError):
            outcomes["refused"] += 1
    assert min(outcomes.values()) > 20, "both happen"


def _mutate(drawn, document):
    """Change a node, a tensor, a call or a module."""
    kind = drawn.choice(["nodes", "tensors", "calls", "layers"])
    places = list(document[kind]) if kind == "tensors" else range(len(document[kind]))
    one, other = (document[kind][drawn.choice(places)] for _ in range(2))
    at = drawn.randrange(len(one))
    if drawn.random() < 0.6:
        one[at], other[at] = other[at], one[at]
    elif isinstance(one[at], list) and one[at]:
        one[at][drawn.randrange(len(one[at]))] = drawn.choice([0, 1, 2, drawn.randrange(80)])
    elif type(one[at]) is int:
        one[at] = drawn.randrange(80)
