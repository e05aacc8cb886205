"""Run an experiment: python -m benchmarks NAME [options]; without a name, list them."""

import ast
import re
import runpy
import sys
from pathlib import Path

HERE = Path(__file__).parent


def experiments() -> dict[str, str]:
    """Return the first sentence of each module that is a program, by its name."""
    found = {}
    for path in sorted(HERE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if path.name != "__main__.py" and path.parent.name != "code" and '\nif __name__ == "__main__":' in text:
            name = ".".join(path.relative_to(HERE).with_suffix("").parts)
            found[name.removesuffix(".command")] = re.split(r"(?<=[.])\s", _docstring(text))[0].rstrip(".")
    return found


def _docstring(text: str) -> str:
    return " ".join((ast.get_docstring(ast.parse(text)) or "").split())


def main() -> None:
    known = experiments()
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        width = max(map(len, known))
        print(f"{__doc__}\n", *(f"{name:<{width}}  {says}" for name, says in known.items()), sep="\n")
        return
    name = sys.argv.pop(1)
    if name not in known:
        raise SystemExit(f"There is no experiment {name}: python -m benchmarks lists them.")
    sys.argv[0] = f"python -m benchmarks {name}"
    module = f"{name}.command" if (HERE / name).is_dir() else name
    runpy.run_module(f"benchmarks.{module}", run_name="__main__")


if __name__ == "__main__":
    main()
