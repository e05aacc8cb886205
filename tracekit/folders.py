"""The files in the folder of a run."""

TRACE = "trace.json.gz"
REPORT = "report.html"
ANALYSIS = "analysis.json"
RUN = "run.json"
VERIFY = "verify.json"
