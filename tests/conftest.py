from pathlib import Path

import pytest

SHARED = Path(__file__).parents[2] / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """Real traces kept beside a developer's checkout; a user's checkout has none."""
    if not SHARED.is_dir():
        pytest.skip("needs the shared traces")
    return SHARED
