"""Lists the attention classes of transformers whose models build masks with masking_utils, by the version that began.

pip download --no-deps -d WHEELS transformers==5.0.0 transformers==5.9.0 ...   # each alone
python -m benchmarks fitting.mask_classes WHEELS      # analyzers/predict/transforms/mask_classes.toml
"""

import argparse
import re
import zipfile
from pathlib import Path

from packaging.version import Version

TARGET = Path(__file__).parents[2] / "analyzers" / "predict" / "transforms" / "mask_classes.toml"
_MODEL = re.compile(r"transformers/models/\w+/modeling_\w+\.py")
_BUILDS = re.compile(r"^from \.+masking_utils import", re.MULTILINE)
_CLASS = re.compile(r"^class (\w*Attention\w*)\(", re.MULTILINE)
_HEAD = """# Attention classes of transformers whose models build masks with masking_utils, by the first such version.
# Written by `python -m benchmarks fitting.mask_classes`; do not edit.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheels", type=Path)
    wheels = {_version(file): file for file in parser.parse_args().wheels.glob("transformers-*.whl")}
    known: set[str] = set()
    sections = []
    for version in sorted(wheels):
        new = sorted(_classes(wheels[version]) - known)
        known |= set(new)
        sections.append(
            f'"{version.major}.{version.minor}" = [\n' + "".join(f'    "{name}",\n' for name in new) + "]\n"
        )
    TARGET.write_text("\n".join([_HEAD, *sections]), encoding="utf-8")


def _version(wheel: Path) -> Version:
    return Version(wheel.name.split("-")[1])


def _classes(wheel: Path) -> set[str]:
    """Return the attention classes in model files that use masking_utils."""
    with zipfile.ZipFile(wheel) as opened:
        files = [opened.read(name).decode() for name in opened.namelist() if _MODEL.fullmatch(name)]
    return {name for text in files if _BUILDS.search(text) for name in _CLASS.findall(text)}


if __name__ == "__main__":
    main()
