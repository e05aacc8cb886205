"""Speed-up, memory, utilisation and accuracy of all studies that were run, in one page.

python examples/studies/four_panels.py
"""

from pathlib import Path

from tracekit.measure import from_csv
from tracekit.reports.document import render
from tracekit.reports.measure import bench_document

if __name__ == "__main__":
    rows = [vars(row) for path in sorted(Path("studies").glob("*/bench.csv")) for row in from_csv(path)]
    Path("studies/four_panels.html").write_text(render(bench_document(rows), "html"), encoding="utf-8")
    print("Written: studies/four_panels.html")
