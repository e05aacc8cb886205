"""Replaces values in a TOML file in place. Comments, order and alignment stay."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

Value = float | str | Mapping[str, float] | Sequence[float]

_SECTION = re.compile(r"\[([^\]]+)\]\s*")


def write(file: Path, section: str, values: Mapping[str, Value]) -> None:
    """Set `values` in [section]; names that it lacks are added at its end."""
    lines = file.read_text(encoding="utf-8").splitlines()
    start, end = _extent(lines, section)
    missing = dict(values)
    for number in range(start, end):
        name = lines[number].partition("=")[0].strip()
        if name in missing:
            lines[number] = _assigned(lines[number], _literal(missing.pop(name)))
    while end > start and not lines[end - 1].strip():
        end -= 1
    lines[end:end] = [f"{name} = {_literal(value)}" for name, value in missing.items()]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _extent(lines: list[str], section: str) -> tuple[int, int]:
    headers = [(number, header[1]) for number, line in enumerate(lines) if (header := _SECTION.fullmatch(line))]
    start = next(number for number, name in headers if name == section) + 1
    return start, next((number for number, _ in headers if number >= start), len(lines))


def _assigned(line: str, literal: str) -> str:
    name, _, rest = line.partition("=")
    comment = re.search(r"\s+#[^\"]*$", rest)
    text = f"{name.rstrip()} = {literal}"
    if not comment:
        return text
    return text.ljust(len(line[: len(name) + 1 + comment.start()])) + comment[0]


def _literal(value: Value) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{name} = {_literal(one)}' for name, one in value.items())} }}"
    if isinstance(value, Sequence):
        return f"[{', '.join(map(_literal, value))}]"
    return f"{value:g}"
