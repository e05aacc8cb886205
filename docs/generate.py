"""Write the generated pages, columns.md and cli.md: `python docs/generate.py`. A test fails when they are stale."""

from importlib import import_module
from pathlib import Path

import click

HERE = Path(__file__).parent


def columns() -> str:
    """Every table and column, from their declarations."""
    for module in ("trace", "result_tables", "oplist"):
        import_module(f"analyzers.{module}")
    tables = import_module("analyzers.tables").TABLES
    head = "# Columns\n\nGenerated from the declarations in `analyzers/`. JSON output gives times in µs."
    return "\n\n".join([head, *(_table(table) for table in tables.values())]) + "\n"


def _table(table) -> str:
    rows = [f"| `{c.name}` | {c.dtype} | {c.unit} | {c.meaning.replace('|', '/')} |" for c in table.columns]
    return "\n".join(
        [f"## {table.name}\n\n{table.meaning}\n", "| column | type | unit | meaning |", "|---|---|---|---|", *rows]
    )


def commands() -> str:
    """The help of every command."""
    cli = import_module("tracekit.cli").main
    context = click.Context(cli, info_name="tracekit", terminal_width=100, max_content_width=100)
    pages = [("tracekit", cli.get_help(context))]
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        inner = click.Context(command, parent=context, info_name=name, terminal_width=100, max_content_width=100)
        pages.append((f"tracekit {name}", command.get_help(inner)))
    return "# Commands\n\nGenerated from `--help`.\n" + "".join(f"\n## {n}\n\n```\n{text}\n```\n" for n, text in pages)


if __name__ == "__main__":
    (HERE / "columns.md").write_text(columns(), encoding="utf-8")
    (HERE / "cli.md").write_text(commands(), encoding="utf-8")
