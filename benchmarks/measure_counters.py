"""Measures op calls one by one under Nsight Compute, and writes benchmarks/data/h200_counters.csv on an H200.

    python benchmarks/measure_counters.py OUT.csv

A row is an op call: its signature as a trace records it (measurements/signatures.py), and the FLOPs and bytes of device
memory of its kernels, each measured with empty caches. Needs `ncu` on the PATH, and the right to read counters. torch's
profiler says which op launches which kernel; then the same calls run under `ncu`, parted by a kernel that spins. About
three minutes.
"""

import argparse
import csv
import subprocess
import sys
from collections import Counter
from pathlib import Path

import torch
from kernel_cases.case import Case, Run
from kernel_counters import HEAD, Launcher, rows
from kernel_times import launchers, recorded_events
from measure_kernels import GROUPS
from torch.profiler import ProfilerActivity, profile, record_function

from tracekit.analyzers.trace.ncu.counters import counters, launches_of

_NUMBERS = {
    2: "var_mean adamw_fused adamw_foreach",
    3: "where_mask layer_norm_bwd softmax_bwd bmm_scores_bf16",
    4: "cross_entropy embedding_bwd",
    5: "heads_contiguous repeat_kv kv_cat bias_row",
    7: "gather_full scatter_add flash_decode cudnn_decode",
    8: "flash_prefill efficient_prefill efficient_fp32_prefill cudnn_prefill",
    9: "add gelu cast_up sum_last sum_first argmax_last layer_norm rms_norm softmax index_put",
    12: "conv2d",
    20: "log_softmax embedding int4_weight",
    30: "fp8 int8",
    60: "mm_fp32 mm_bf16 addmm_bf16",
}
CASES = {label: number for number, labels in _NUMBERS.items() for label in labels.split()}
"""Index of the chosen case among those of a label, by label."""
_INSTRUCTIONS = [f"{kind}{op}" for kind in "fhd" for op in ("add", "mul", "fma")]
_TENSOR = ("bf16_dst_fp32", "fp16_dst_fp32", "tf32_dst_fp32", "fp8", "int8")
_METRICS = [
    *("gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum"),
    *(f"smsp__sass_thread_inst_executed_op_{name}_pred_on.sum" for name in _INSTRUCTIONS),
    *(f"sm__ops_path_tensor_src_{name}.sum" for name in _TENSOR),
]
_NCU = ["ncu", "--clock-control", "none", "--profile-from-start", "off", "--csv", "--page", "raw"]
_CYCLES = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--launch", nargs="+", metavar="LABEL", help="under ncu: only run these calls, in this order")
    asked = parser.parse_args()
    cases = chosen()
    if asked.launch:
        launch([cases[label] for label in asked.launch])
        return
    known = recorded(cases)
    with asked.out.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(HEAD)
        out.writerows(rows(known, counters(launches_of(measured(asked.out, known)))[0]))


def chosen() -> dict[str, Case]:
    """Return the case of each label, in the order of the groups."""
    seen: Counter[str] = Counter()
    by_label = {}
    for case in (case for cases in GROUPS.values() for case in cases()):
        if CASES.get(case.label) == seen[case.label]:
            by_label[case.label] = case
        seen[case.label] += 1
    return by_label


def recorded(cases: dict[str, Case]) -> dict[str, list[Launcher]]:
    """Return the launchers of each kernel of each call. A call that this GPU or PyTorch cannot run is named and left
    out."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True) as profiler:
        for number, (label, case) in enumerate(cases.items()):
            try:
                run = _ready(case)
                with record_function(f"case:{number}:counted:0"):
                    run()
                torch.cuda.synchronize()
            except (RuntimeError, ValueError) as error:
                print(f"{label}: {str(error).splitlines()[0][:100]}", flush=True)
    by_case = launchers(recorded_events(profiler))
    torch.cuda.empty_cache()
    return {
        label: [Launcher(*launcher, elements=case.elements) for launcher in by_case[number]]
        for number, (label, case) in enumerate(cases.items())
        if number in by_case
    }


def measured(out: Path, labels: dict[str, list[Launcher]]) -> bytes:
    """Return the report of Nsight Compute on the same calls, run in another process."""
    command = [*_NCU, "--metrics", ",".join(_METRICS), sys.executable, __file__, str(out), "--launch", *labels]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout


def launch(cases: list[Case]) -> None:
    for case in cases:
        run = _ready(case)
        torch.cuda.cudart().cudaProfilerStart()
        torch.cuda._sleep(_CYCLES)
        run()
        torch.cuda.synchronize()
        torch.cuda.cudart().cudaProfilerStop()
        del run
        torch.cuda.empty_cache()


def _ready(case: Case) -> Run:
    """Return the call after running it once, because libraries choose kernels in the first run."""
    run = case.setup()
    run()
    torch.cuda.synchronize()
    return run


if __name__ == "__main__":
    main()
