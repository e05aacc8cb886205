"""Prints the tables of docs/diagnosis.md: the first advice for slow scripts with one planted cause, and what the fix
gained."""

import csv
from pathlib import Path
from statistics import median

HERE = Path(__file__).parent
Row = dict[str, str]
_LATER = "later, gains known"
_AGAIN = "first again"
"""The first ten scripts of the first set, recorded a second time on other machines."""
EARLIER_SETS = 28
"""Number of sets that the table sums up in one row."""
LAST_SETS = 8
"""Number of sets on which widths are measured: rules were worse before."""
_TOLD = ", latency told"
"""End of the name of a set that was diagnosed again with the latency of each script told."""


def rows() -> list[Row]:
    with (HERE / "rows.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def before_gains() -> list[Row]:
    """Rows of all sets as they were diagnosed when nobody had looked at the gains."""
    return [row for row in rows() if row["diagnosed"] != _LATER and row["set"] != _AGAIN and not _is_told(row)]


def of_first_recordings() -> list[Row]:
    """Rows of all sets as they were diagnosed first and, after those, by later code."""
    return [*before_gains(), *later()]


def told() -> list[Row]:
    """Rows of these sets that were diagnosed with the latency of each script told."""
    return [row for row in rows() if _is_told(row)]


def _is_told(row: Row) -> bool:
    return row["set"].endswith(_TOLD)


def set_of(row: Row) -> str:
    """Return the set of a row, without whether its latency was told."""
    return row["set"].removesuffix(_TOLD)


def sets_of(some: list[Row]) -> list[str]:
    """Return the sets of these rows, in order."""
    return list(dict.fromkeys(map(set_of, some)))


def later() -> list[Row]:
    """The same traces by later code, whose rules had been changed for them."""
    return [row for row in rows() if row["diagnosed"] == _LATER]


def again() -> list[Row]:
    return [row for row in rows() if row["set"] == _AGAIN]


def compared(some: list[Row]) -> list[Row]:
    """Rows whose first advice is the fix that was measured."""
    return [row for row in some if row["compared"] == "yes"]


def inside(row: Row) -> bool:
    return float(row["low"]) <= float(row["gain"]) <= float(row["high"])


def width(some: list[Row]) -> float:
    """Return the median of high / low of the predicted intervals."""
    return median(float(row["high"]) / float(row["low"]) for row in some)


def summary() -> str:
    """Return a row for each set since the twenty-ninth, one for all sets, and those of what was diagnosed later or
    recorded again."""
    first = before_gains()
    names = sets_of(first)
    head = ["set", "scripts", "diagnosis was committed", "first advice right", "gain inside", "median high ÷ low"]
    lines = [" | ".join(head), "---|---:|---|---:|---:|---:"]
    early = [row for row in first if row["set"] in names[:EARLIER_SETS]]
    lines.append(_counts("first twenty-eight", early, "before gains, or with them"))
    for name in names[EARLIER_SETS:]:
        some = [row for row in first if row["set"] == name]
        lines.append(_counts(name, some, some[0]["diagnosed"]))
    lines.append(_counts("**all sets**", first, ""))
    lines.append(_counts("since the eleventh, latency told", told(), "before gains"))
    lines.append(_counts("all but the tenth, again", later(), _LATER))
    lines.append(_counts("ten of the first, on three machines", again(), "rules known"))
    return "\n".join(f"| {line} |" if not line.startswith("---") else f"|{line}|" for line in lines)


def _counts(name: str, some: list[Row], committed: str) -> str:
    asked = compared(some)
    right = sum(row["right"] == "yes" for row in some)
    return (
        f"{name} | {len(some)} | {committed} | {right} | {sum(map(inside, asked))} of {len(asked)} | {width(asked):.1f}"
    )


def misses() -> str:
    """Return the scripts of each set whose first advice, as first diagnosed, did not name the planted cause, without
    those of which later rules were right."""
    now = {(row["set"], row["script"]): row["right"] for row in later()}
    missed = [row for row in before_gains() if row["right"] == "no" and now.get((row["set"], row["script"])) != "yes"]
    lines = ["| set | script: what was planted (first advice) |", "|---|---|"]
    for name in sets_of(missed):
        lines.append(f"| {name} | {'; '.join(_miss(row) for row in missed if row['set'] == name)} |")
    return "\n".join(lines)


def _miss(row: Row) -> str:
    advice = f"`{row['first_advice']}`" if row["first_advice"] else "none"
    return f"**{row['script']}**: {row['planted']} ({advice})"


def main() -> None:
    print(summary(), misses(), sep="\n\n")


if __name__ == "__main__":
    main()
