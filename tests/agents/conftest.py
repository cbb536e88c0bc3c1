"""Settings of the learning tests: one thread, which suits small networks, and importable toy environments."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch as th

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    th.set_num_threads(1)
