"""Profile every bundled model, modelled for a GPU: the time and memory that it takes, as a table for docs/models.md.

    python -m benchmarks every_model [--gpu t4] [MODEL ...]

Each model runs in a separate process. The script fails when one takes more than 20 s of CPU or 2 GB.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time

MOST_SECONDS, MOST_BYTES = 20.0, 2e9
_PROFILE = """
import json, os, resource, sys, time
started = time.process_time()
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
import tracekit
analysis = tracekit.profile(sys.argv[1], gpu=sys.argv[2], device="model", output=sys.argv[3], force=True)
capture = analysis.source.capture
print(json.dumps({
    "parameters": capture.parameters, "dtype": capture.dtype, "step_us": capture.latency.median_us,
    "peak_bytes": capture.peak_memory_bytes, "bound": analysis.bound.ranked()[0][0], "cost": analysis.coverage.cost,
    "seconds": time.process_time() - started, "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
}))
"""


def profiled(model: str, gpu: str) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-W", "ignore", "-c", _PROFILE, model, gpu, folder]
        started = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["no message"])[-1]}
    return json.loads(done.stdout.splitlines()[-1]) | {"wall": time.monotonic() - started}


def row(model: str, profile: dict) -> str:
    if "error" in profile:
        return f"| `{model}` | {profile['error']} |"
    return (
        f"| `{model}` | {profile['parameters'] / 1e6:,.0f} M | {profile['dtype']} | {profile['step_us'] / 1e3:,.2f} ms "
        f"| {profile['peak_bytes'] / 1e9:,.1f} GB | {profile['bound']} "
        f"| {profile['seconds']:.1f} s | {profile['rss'] / 1e9:.2f} GB |"
    )


def main() -> int:
    from tracekit.capture import bundled

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpu", default="t4")
    parser.add_argument("models", nargs="*")
    args = parser.parse_args()
    print(f"| model | parameters | dtype | prefill, {args.gpu} | memory | bound | CPU time | process |")
    print("|---|---|---|---|---|---|---|---|")
    wrong = 0
    for model in args.models or [spec.name for spec in bundled()]:
        profile = profiled(model, args.gpu)
        print(row(model, profile), flush=True)
        wrong += "error" in profile or profile["seconds"] > MOST_SECONDS or profile["rss"] > MOST_BYTES
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
