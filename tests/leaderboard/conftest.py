"""A valid submission, played once; tests damage copies of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.leaderboard.samples import make_sample

TASKS = (("open", "RAO/Maze-5x5-v0", {"spawn": True}), ("open", "RAO/Algebra-depth2-v0", {"spawn": True}))


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs on two tasks; not to be changed."""
    return make_sample(tmp_path_factory.mktemp("pristine"), "sample", tasks=TASKS, runs=2)


@pytest.fixture
def folder(pristine: Path, tmp_path: Path) -> Path:
    """A copy to be damaged."""
    return Path(shutil.copytree(pristine, tmp_path / "sample"))
