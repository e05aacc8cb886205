import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples in every run of continuous integration, new ones in every other.
settings.register_profile("tracekit", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("tracekit")

SHARED = Path(__file__).parents[2] / "shared"


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests leave the user's cache and configuration alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("caches")))
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("configuration")))
        yield


@pytest.fixture(scope="session")
def shared() -> Path:
    """Real traces kept beside a developer's checkout; a user's checkout has none."""
    if not SHARED.is_dir():
        pytest.skip("needs the shared traces")
    return SHARED
