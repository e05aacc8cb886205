import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import settings

# Tests run side by side: models this small gain nothing from threads, which wait for each other busily.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Without compiled code, each process that a test starts compiles tracekit again, for longer than most tests take.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A shell that starts the suite in the background makes it, and each process that it starts, ignore interruptions.
signal.signal(signal.SIGINT, signal.default_int_handler)

# PyTorch and its models are a million objects, and looking through them for garbage took 8 % of the time.
gc.set_threshold(100_000, 50, 50)

# The same examples in every run of continuous integration, new ones in every other.
settings.register_profile("tracekit", deadline=None, max_examples=25, derandomize="CI" in os.environ)
settings.load_profile("tracekit")

# As where pyarrow is not installed, in a quarter less time. Some of test_consistent_advice.py have those of pyarrow.
pd.set_option("mode.string_storage", "python")

if not Path("/dev/nvidiactl").exists():
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported, which torch may do

_BROWSER = ("test_accessibility", "test_browser", "test_browser_charts", "test_browser_moves", "test_viewers")
_SLOW = ("test_missing_packages", "test_packaging", "test_model_folders", "test_worker_ends", "test_contributing")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Run the tests of one file in this process: starting workers would take longer. None: one worker per core."""
    files = {argument.partition("::")[0] for argument in config.args}
    return 0 if len(files) == 1 and files.pop().endswith(".py") else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the files that need a browser, and those that start a process or build a model for each test."""
    for item in items:
        if item.path.stem in _BROWSER:
            item.add_marker("browser")
        if item.path.stem in _SLOW:
            item.add_marker("slow")


def pytest_collection_finish() -> None:
    """Leave all that was imported out of later searches for garbage: whoever measures starts one."""
    gc.freeze()


SHARED = Path(__file__).parents[2] / "shared"


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Use a cache and a configuration other than the user's. Workers share one cache."""
    folder = tmp_path_factory.getbasetemp()
    shared_folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(shared_folder / "caches"))
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("configuration")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _timed_briefly() -> Iterator[None]:
    """Time steps for a twentieth of the usual two seconds: how long is a user's choice of precision."""
    from tracekit.capture import latency

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(latency, "BUDGET_S", 0.1)
        yield


@pytest.fixture(scope="module")
def started_once() -> Iterator[None]:
    """Read and analyze a trace once: predictions change neither its analysis nor its baseline."""
    from tracekit.answer import predicting

    begun, make = {}, predicting._baseline

    def baseline(path, named, *others):
        key = (str(path), named and named.id, *others)
        if key not in begun:
            begun[key] = make(path, named, *others)
        return begun[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(predicting, "_baseline", baseline)
        yield


@pytest.fixture
def same_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Measure in this process, which has imported PyTorch already, and for a tenth of a second."""
    from same_process import SameProcess

    from tracekit.measure import benching, interleaved, jobs, sweeping, verifying

    plan = interleaved._plan
    monkeypatch.setattr(interleaved, "_plan", lambda *given: plan(*given[:2], min(given[2], 0.1), given[3]))
    for module in (benching, verifying, sweeping):
        monkeypatch.setattr(module, "Worker", SameProcess)
    yield
    jobs._CACHE.runs.clear()


@pytest.fixture(scope="module")
def no_models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Give processes that measure a transformers without models, in this folder: loading the real one takes seconds."""
    pytest.importorskip("transformers")  # this process keeps the real one
    folder = tmp_path_factory.mktemp("libraries")
    (folder / "transformers").mkdir()
    for name in ("__init__.py", "modeling_utils.py"):
        (folder / "transformers" / name).touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield folder


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder of real traces beside a developer's checkout; a user's checkout has none."""
    if not SHARED.is_dir():
        pytest.skip("needs the shared traces")
    return SHARED
