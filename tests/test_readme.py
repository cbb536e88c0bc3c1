"""The code in README and docs does what it says: its blocks run as written, on fewer steps; and no link leads nowhere."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
PAGES = sorted((ROOT / "docs").rglob("*.md"))
WRITTEN = {"ontologies.md": ("weekend.json", "goals.json")}
"""Names of the files that a page's JSON blocks are."""
SCHEMA = [
    {
        "service_name": "hotel",
        "slots": [{"name": "hotel-area", "is_categorical": True, "possible_values": ["north", "south"]}],
        "intents": [],
    }
]
HOTELS = [{"name": "Mill", "area": "north"}, {"name": "Chain", "area": "south"}]
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


@pytest.mark.filterwarnings("ignore:.*latest versioned environment.*:UserWarning")
@pytest.mark.filterwarnings("ignore::rao_envs.dialogue.ontology.OntologyWarning")  # what an import decides
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_blocks_of_a_page_run_one_after_the_other(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # some write a file
    text = page.read_text(encoding="utf-8")
    for name, block in zip(WRITTEN.get(page.name, ()), re.findall(r"```json\n(.*?)```", text, flags=re.DOTALL), strict=False):
        Path(name).write_text(block, encoding="utf-8")
    if page.name in WRITTEN:
        Path("schema.json").write_text(json.dumps(SCHEMA), encoding="utf-8")
        for folder in (Path(), Path("db")):
            folder.mkdir(exist_ok=True)
            (folder / "hotel_db.json").write_text(json.dumps(HOTELS), encoding="utf-8")
    namespace = {"__name__": page.stem}
    for block in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        shortened = re.sub(r"learn\([\d_]{5,}(, progress_bar=True)?", "learn(4096", block)
        exec(compile(shortened, str(page), "exec"), namespace)


@pytest.mark.parametrize("example", [ROOT / "examples" / "specialists.py"], ids=lambda path: path.name)
def test_examples_run(example: Path) -> None:
    done = subprocess.run([sys.executable, str(example), "--episodes", "4"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rates = [float(rate) for rate in re.findall(r"success (\d\.\d\d)", done.stdout)]
    assert len(rates) == 4 and min(rates) >= 0.75


def _anchors(page: Path) -> set[str]:
    """What GitHub calls a page's headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    "page", [README, ROOT / "CONTRIBUTING.md", ROOT / "baselines/configs/README.md", *PAGES], ids=lambda page: page.name
)
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\((?!http)([^)]+)\)", page.read_text(encoding="utf-8")):
        target, _, anchor = link.partition("#")
        there = page.parent / target if target else page
        assert there.exists(), link
        assert not anchor or anchor in _anchors(there), link
