"""The package's front door."""

from __future__ import annotations

import subprocess
import sys

import pytest

import rao_agents


def test_public_names_exist() -> None:
    assert sorted(rao_agents.__all__) == rao_agents.__all__
    assert all(hasattr(rao_agents, name) for name in rao_agents.__all__)


@pytest.mark.parametrize("missing", ["torch", "stable_baselines3", "sb3_contrib"])
def test_missing_libraries_name_the_extra(missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; import rao_agents"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert 'pip install "rao-envs[agents]"' in result.stderr and missing in result.stderr
