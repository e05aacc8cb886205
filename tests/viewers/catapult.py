"""Imports a trace into Chrome's trace viewer (catapult, as viztracer packages it), and returns what it shows."""

import html
import json
import subprocess
from pathlib import Path
from typing import Any

import viztracer

_PAGE = """<!DOCTYPE html>
<html><head><meta charset="utf-8"><script>{polyfill}</script></head><body>{viewer}
<script type="application/json" id="trace">{trace}</script>
<script>
const model = new tr.Model();
new tr.importer.Import(model).importTraces([document.getElementById("trace").textContent]);
const answer = {{
  threads: Object.fromEntries(model.getAllThreads().map((thread) => [thread.name, thread.sliceGroup.length])),
  flows: model.flowEvents.length,
  warnings: model.importWarnings.map((warning) => warning.message),
}};
document.documentElement.textContent = JSON.stringify(answer);
</script></body></html>"""


def open_trace(chromium: str, polyfill: Path, trace: str, folder: Path) -> dict[str, Any]:
    """Return slices by thread, flows and import warnings. The viewer needs Web Components v0, hence `polyfill`."""
    viewer = Path(viztracer.__file__).parent / "html" / "trace_viewer_full.html"
    page = folder / "viewer.html"
    page.write_text(
        _PAGE.format(
            polyfill=polyfill.read_text(encoding="utf-8"),
            viewer=viewer.read_text(encoding="utf-8"),
            trace=trace.replace("</", "<\\/"),
        ),
        encoding="utf-8",
    )
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        f"--user-data-dir={folder}/profile",
    ]
    run = subprocess.run(
        [chromium, *flags, "--virtual-time-budget=60000", "--dump-dom", page.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    text = run.stdout[run.stdout.index("<html>") + len("<html>") : run.stdout.rindex("</html>")]
    return json.loads(html.unescape(text))
