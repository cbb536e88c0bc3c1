"""The README's code does what it says: its blocks run as written, on fewer steps."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[1] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.mark.filterwarnings("ignore:.*latest versioned environment.*:UserWarning")
@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_block_runs(block: str, capsys: pytest.CaptureFixture[str]) -> None:
    shortened = block.replace("seeds=100", "seeds=3").replace("400_000, progress_bar=True", "4096")
    exec(compile(shortened, str(README), "exec"), {"__name__": "readme"})
    if "print(" in block:
        assert "success" in capsys.readouterr().out


def test_there_are_blocks_to_run() -> None:
    assert len(BLOCKS) == 2


@pytest.mark.parametrize("target", re.findall(r"\]\((?!http)([^)#]+)\)", README.read_text(encoding="utf-8")))
def test_linked_files_exist(target: str) -> None:
    assert (README.parent / target).exists()
