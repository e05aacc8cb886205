"""docs/optimizations.md has exactly one section for each optimization."""

import re
from pathlib import Path

from tracekit.advise import KNOWN, find

PAGE = Path(__file__).parents[2] / "docs" / "optimizations.md"


def test_each_optimization_has_a_section_that_says_something():
    sections = re.split(r"^### ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    texts = {section.split("\n", 1)[0]: section.split("\n", 1)[1] for section in sections}
    assert set(texts) == {optimization.id for optimization in KNOWN}
    assert all(len(text.split()) > 20 for text in texts.values())
    hurts = {name for name, text in texts.items() if "*Hurts*" in text or "*Refused*" in text}
    assert set(texts) - hurts - {each.id for each in KNOWN if each.needless} == {"batching", "planned-again"}
    assert all(each.costs and f"*Effort*: {each.costs.effort}" in texts[each.id] for each in KNOWN)


def test_aliases_name_one_optimization_each():
    names = [name for each in KNOWN for name in (each.id, *each.aliases)]
    assert len(names) == len(set(names))
    assert find("graphs").id == "cuda-graphs"
    assert find("int4").id == "int4-weight-only"
