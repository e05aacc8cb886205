"""Eight ranks, read by HolisticTraceAnalysis, by tracekit for it, and analyzed by `tracekit ranks`, side by side.

    python benchmarks/ranks_peers.py TRACE --ranks 8 --megabytes 12

Copies of one trace, replicated from TRACE, each with other blanks at its end, so that no cache knows it. Needs the
extra hta. CPU time and memory are those of all processes.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from ranks_scale import measured
from replicate import replicate

_QUIET = "import logging, warnings; logging.disable(logging.WARNING); warnings.simplefilter('ignore'); "
_ASKS = "a.get_temporal_breakdown(visualize=False), a.get_comm_comp_overlap(visualize=False)"
_FILES = "import json, sys; files = dict(enumerate(json.loads(sys.argv[1]))); "
_PROGRAMS = {
    "traceinsight": f"{_QUIET}{_FILES}from hta.trace_analysis import TraceAnalysis; a = TraceAnalysis(files); {_ASKS}",
    "tracekit.hta": f"{_QUIET}{_FILES}import tracekit; a = tracekit.hta(list(files.values())); {_ASKS}",
    "tracekit ranks": f"{_FILES}import tracekit; tracekit.ranks(list(files.values()))",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--megabytes", type=float, default=12)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        large = Path(folder) / "large.json"
        events = replicate(asked.trace, large, asked.megabytes)
        files = [str(Path(folder) / f"rank-{rank}.json") for rank in range(asked.ranks)]
        for number, file in enumerate(files):
            Path(file).write_bytes(large.read_bytes() + b" " * number)
        print(f"{asked.ranks} ranks of {large.stat().st_size / 1e6:.0f} MB, {events:,} events each")
        for name, program in _PROGRAMS.items():
            environment = ["env", f"XDG_CACHE_HOME={folder}/{name.replace(' ', '-')}"]
            wall, used, peak = measured([*environment, sys.executable, "-c", program, json.dumps(files)])
            print(f"{name:16} {wall:7.1f} s, {used:7.1f} s of CPU, {peak:6.0f} MB", flush=True)


if __name__ == "__main__":
    main()
