"""measure_kernels.py reads each op's kernels from a trace, cold and warm."""

from kernel_cases.case import Case
from kernel_times import Walls, op_rows


def events() -> list[dict]:
    """Return two repeats of a case in both states; add, inside linear, starts one kernel, and linear itself another."""
    events = []
    for repeat, (state, us) in enumerate([("cold", 8.0), ("warm", 99.0), ("warm", 5.0)]):
        at = 100.0 * repeat
        number = 0 if state == "cold" else repeat - 1
        events.append({"cat": "user_annotation", "name": f"case:0:{state}:{number}", "ts": at, "dur": 50.0, "tid": 1})
        args = {"Input Dims": [[4], [4]], "Input type": ["float", "float"], "Input Strides": [[1], [1]]}
        for name, start, length in (("aten::linear", 1.0, 40.0), ("aten::add", 5.0, 10.0)):
            op = {"cat": "cpu_op", "name": name, "ts": at + start, "dur": length, "tid": 1, "args": args}
            launch = {"cat": "cuda_runtime", "ts": at + start + (25.0 if "linear" in name else 1.0), "tid": 1}
            kernel = {"cat": "kernel", "name": "k", "ts": at + 60 + start, "dur": us if "add" in name else 2.0}
            correlation = {"correlation": 10 * repeat + ("add" in name)}
            events += [op, {**launch, "args": correlation}, {**kernel, "args": correlation}]
    return events


def test_each_op_has_its_own_kernels_and_the_first_warm_run_does_not_count() -> None:
    rows = list(op_rows([Case("both", lambda: lambda: None)], events(), Walls()))
    assert rows == [
        ("both", "add", "fp32[4] fp32[4]", "", "8", "5", 1, ""),
        ("both", "linear", "fp32[4] fp32[4]", "", "2", "2", 1, ""),
    ]
