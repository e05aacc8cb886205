"""The shape of the tensor from which an op gathers is a recorded fact of the op."""

from kineto_files import kernel, load_events, op

from tracekit.analyzers import analyze
from tracekit.analyzers.predict.oplist import listed


def test_the_rows_of_a_gather_are_those_of_its_first_input(tmp_path):
    launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "dur": 1.0}
    shapes = {"Input Dims": [[8, 4, 16], []], "Input type": ["c10::BFloat16", ""], "Concrete Inputs": ["", ""]}
    events = [op("aten::index", 10.0, args=shapes), launch | {"ts": 12.0, "args": {"correlation": 1}}, kernel(ts=20.0)]
    events += [op("aten::add", 20.0, args=shapes), launch | {"ts": 22.0, "args": {"correlation": 2}}]
    trace = load_events(tmp_path, *events, kernel(ts=30.0, correlation=2))
    step = listed(trace, analyze(trace))
    assert list(step.recorded.sources(step.ops)) == [(8, 64), None]
