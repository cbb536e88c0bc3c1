"""What importing costs, and that compiled kernels are never those of other sources. Each test looks at fresh processes."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import rao_envs
from rao_envs.core.jit import kernel_sources

PACKAGE = Path(rao_envs.__file__).parent
HEAVY = ("torch", "stable_baselines3", "sb3_contrib", "pygame", "matplotlib", "pandas", "rao_agents", "rao_baselines")
PROBE = """
import numpy as np
from rao_envs.core.callstack import EVENT_RETURN
from rao_envs.core.jit import jit
from rao_envs.core.rng import below

@jit
def probe(state):
    return 1000 * EVENT_RETURN + below(state, 10)
"""


def run(code: str, root: Path = PACKAGE.parent, **environment: str) -> str:
    """The output of `code` in a new process that imports from `root` first."""
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        cwd=root,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_importing_and_stepping_needs_nothing_heavy() -> None:
    for code in (
        "import rao_envs",
        "import gymnasium, rao_envs; env = gymnasium.make('RAO/Maze-5x5-v0'); env.reset(seed=0); env.step(0)",
        "import gymnasium, rao_envs; env = gymnasium.make_vec('RAO/Maze-5x5-v0', num_envs=2); env.reset(seed=0)",
    ):
        loaded = run(f"{code}\nimport json, sys; print(json.dumps([m for m in {HEAVY} if m in sys.modules]))")
        assert json.loads(loaded) == []


def test_importing_takes_less_than_a_second() -> None:
    # Processor time, the best of three: the machine may be busy with other tests.
    code = "import time; start = time.process_time(); import rao_envs; print(time.process_time() - start)"
    assert min(float(run(code)) for _ in range(3)) < 1.0


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of the package that may be edited, with one small kernel more."""
    package = tmp_path / "rao_envs"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "probe.py").write_text(PROBE)
    return package


def probe(package: Path, **environment: str) -> tuple[int, bool]:
    """What the small kernel returns, and whether it came from the cache."""
    code = (
        "import numpy as np; from rao_envs.probe import probe; import rao_envs;"
        f"assert rao_envs.__file__.startswith({str(package)!r});"
        "print(probe(np.zeros(1, np.uint64)), len(probe.stats.cache_hits))"
    )
    value, hits = run(code, package.parent, PYTHONDONTWRITEBYTECODE="1", **environment).split()
    return int(value), hits == "1"


def edit(path: Path, old: str, new: str) -> None:
    """Replace `old`, which must be there once."""
    source = path.read_text()
    assert source.count(old) == 1
    path.write_text(source.replace(old, new))


@pytest.mark.parametrize("elsewhere", [False, True], ids=["in the package", "in NUMBA_CACHE_DIR"])
def test_kernels_are_compiled_again_when_a_helper_or_a_constant_changes(copied: Path, tmp_path: Path, elsewhere: bool) -> None:
    environment = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")} if elsewhere else {"NUMBA_CACHE_DIR": ""}
    first, cached = probe(copied, **environment)
    assert not cached
    assert probe(copied, **environment) == (first, True)
    edit(copied / "core" / "rng.py", "np.uint64(n)) >> U32)", "np.uint64(n)) >> U32) + 100")
    assert probe(copied, **environment) == (first + 100, False)
    edit(copied / "core" / "callstack.py", "= 0, 1, 2, 3", "= 0, 1, 2, 7")
    assert probe(copied, **environment) == (first + 4100, False)
    assert probe(copied, **environment) == (first + 4100, True)
    viewer = copied / "core" / "viewer.py"
    viewer.write_text(viewer.read_text() + "\n# Says nothing to kernels.\n")
    assert probe(copied, **environment) == (first + 4100, True)


def read_only(package: Path, tmp_path: Path) -> dict[str, str]:
    """Leave Numba no place to write to, not even as root: files where directories would have to be."""
    for folder in [package, *(path for path in package.rglob("*") if path.is_dir())]:
        (folder / "__pycache__").write_text("")
    nowhere = tmp_path / "nowhere"
    nowhere.write_text("")
    return {"HOME": str(nowhere), "XDG_CACHE_HOME": str(nowhere), "LOCALAPPDATA": str(nowhere), "NUMBA_CACHE_DIR": ""}


def test_a_read_only_installation_works(copied: Path, tmp_path: Path) -> None:
    environment = read_only(copied, tmp_path)
    first, cached = probe(copied, **environment)
    assert (first // 1000, cached) == (3, False)
    assert probe(copied, **environment) == (first, False)


@pytest.mark.slow
def test_a_read_only_installation_steps_an_environment(copied: Path, tmp_path: Path) -> None:
    code = "import gymnasium, rao_envs; env = gymnasium.make('RAO/Maze-5x5-v0'); env.reset(seed=0); print(env.step(0)[1])"
    assert run(code, copied.parent, PYTHONDONTWRITEBYTECODE="1", **read_only(copied, tmp_path)) == "0.0"


def test_the_digest_covers_all_that_kernels_import() -> None:
    covered = {path.relative_to(PACKAGE.parent).with_suffix("").as_posix().replace("/", ".") for path in kernel_sources()}
    assert {"rao_envs.core.kernels", "rao_envs.core.rng", "rao_envs.core.callstack", "rao_envs.maze.kernels"} <= covered
    for path in kernel_sources():
        if path.name == "reference.py":  # compiles a search of its own, and drives environments besides
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("rao_envs"):
                names = {f"{node.module}.{alias.name}" for alias in node.names}
                assert node.module in covered or names <= covered, f"{path.name} imports {node.module}"
