import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def clean():
    """Every test begins unpatched and leaves nothing behind."""
    import lacis

    lacis.unpatch()
    yield
    lacis.unpatch()
    if "torch" in sys.modules:
        lacis.clear_caches()
