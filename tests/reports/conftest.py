import gpt2_decode
import pytest
from msgspec.structs import replace

from tracekit.analyzers.cost import hardware
from tracekit.analyzers.results import Analysis


@pytest.fixture(scope="session")
def analysis() -> Analysis:
    return gpt2_decode.build()


@pytest.fixture(scope="session")
def modelled(analysis: Analysis) -> Analysis:
    t4 = hardware.find("t4")
    return replace(analysis, source=replace(analysis.source, kind="modelled", gpu=t4, device_name="Tesla T4"))


@pytest.fixture(scope="session")
def imported(analysis: Analysis) -> Analysis:
    source = replace(analysis.source, kind="imported", format="kineto", capture=None)
    return replace(analysis, source=source, latency=replace(analysis.latency, unprofiled=None))
