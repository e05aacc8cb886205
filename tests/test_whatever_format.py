"""Damages the samples of every format: each gives an analysis, or an error for people.

The samples of a format share the work: together, they are cut at every percent, and damaged in each way.
"""

import gzip
import random
import re
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest
from whatever_state import check

from tracekit.analyzers.core import TracekitError
from tracekit.analyzers.trace import load

ROOT = Path(__file__).parents[1]
FOLDERS = (ROOT / "examples", ROOT.parent / "shared")
FORMATS = {
    "kineto": ["traces/**/*.json.gz"],
    "nsys": ["nsys/*.sqlite*"],
    "ncu": ["ncu/*.csv*", "counters/*.csv*"],
    "ncu-rep": ["counters/*.ncu-rep"] if find_spec("ncu_report") else [],
}
LARGEST_BYTES = 60_000
"""Limit for the size of a compressed sample. Larger ones are of the same kinds, and slow."""
KEY, COLUMN = re.compile(rb'"([A-Za-z_][\w ./%]*)"'), re.compile(rb"\b[a-z]+[A-Z]\w+")


class Sample(NamedTuple):
    form: str
    path: Path
    place: int
    of: int
    """The sample is the `place`-th of this many samples of its format."""

    def content(self):
        raw = self.path.read_bytes()
        return gzip.decompress(raw) if self.path.suffix == ".gz" else raw


def samples(form):
    paths = sorted(path for folder in FOLDERS for glob in FORMATS[form] for path in folder.glob(glob))
    small = [path for path in paths if path.suffix != ".gz" or path.stat().st_size < LARGEST_BYTES]
    return [Sample(form, path, place, len(small)) for place, path in enumerate(small)]


each = pytest.mark.parametrize("sample", [s for form in FORMATS for s in samples(form)], ids=lambda s: s.path.name)


def read(folder, changed):
    """Return the trace, or None if it was refused with a reason."""
    path = folder / "sample"
    path.write_bytes(changed)
    try:
        return load(path)
    except TracekitError as error:
        assert error.what and (error.why or error.hint)
        return None


@each
def test_cut_at_every_percent(tmp_path, sample):
    whole = sample.content()
    for percent in range(1 + sample.place, 100, sample.of):
        trace = read(tmp_path, whole[: len(whole) * percent // 100])
        # A CSV that is cut at the end of a line looks whole.
        assert trace is None or sample.form == "ncu" or "truncated" in set(trace.problems["code"]), percent
    check(tmp_path, whole[: len(whole) * 2 // 3])


WAYS = ("3 bytes", "300 bytes", "everywhere", "in places")


@pytest.mark.parametrize(
    ("sample", "way"),
    [
        pytest.param(each, way, id=f"{each.path.name}-{way}")
        for each in (sample for form in FORMATS for sample in samples(form))
        for number, way in enumerate(WAYS)
        if (number - each.place) % min(each.of, len(WAYS)) == 0
    ],
)
def test_damaged(tmp_path, sample, way):
    """Change bytes, or rename a key, a column or a table everywhere, or in places. A format of few takes all ways."""
    chance = random.Random(sample.path.name)
    changed = bytes_changed(sample, int(way.split()[0]), chance) if "bytes" in way else renamed(sample, way, chance)
    check(tmp_path, changed)


def bytes_changed(sample, count, chance):
    changed = bytearray(sample.content())
    for _ in range(count):
        changed[chance.randrange(16, len(changed))] = chance.randrange(256)
    return bytes(changed)


def renamed(sample, way, chance):
    whole = sample.content()
    names = sorted(set((COLUMN if sample.form == "nsys" else KEY).findall(whole[:200_000])))
    if not names:
        pytest.skip("its fields have numbers, not names")
    everywhere, in_places = chance.sample(names, 2) if len(names) > 1 else names * 2
    name = everywhere if way == "everywhere" else in_places
    others = [b"x" * len(name)] if way == "everywhere" else [name, b"x" * len(name)]
    return b"".join(part + chance.choice(others) for part in whole.split(name))
