"""The sentences of problems agree with their counts."""

import re

import pytest

from tracekit.analyzers.trace import problem
from tracekit.analyzers.trace.problems import KINDS


@pytest.mark.parametrize(("count", "wrong"), [(1, "were|have|are|do|they"), (2, "was|has|is|does|it")])
def test_a_message_agrees_with_its_count(count, wrong):
    messages = [problem(code, count, "x").row()[3] for code in KINDS]
    assert any(message.startswith(f"{count} ") for message in messages)
    assert not [each for each in messages if re.match(rf"{count} [\w ]+\b({wrong})\b", each)]
    assert not [each for each in messages if re.search(r"[{|}]", each)]
