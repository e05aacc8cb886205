"""`python -m tracekit`."""

from tracekit.cli import main

main(prog_name="tracekit")
