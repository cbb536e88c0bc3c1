from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rao_baselines.errors import UserError
from rao_baselines.experiments import SUITES
from rao_baselines.places import results_folder, source_root
from rao_baselines.suite import curves_name
from rao_baselines.tables import documents, write_tables

ROOT = source_root()
assert ROOT is not None


def test_the_published_tables_say_what_the_kept_results_say(tmp_path: Path) -> None:
    for document in documents(ROOT):
        copy = tmp_path / document.name
        shutil.copy(document, copy)
        assert not write_tables([copy], results_folder()), f"{document} is out of date: `rao bench tables` writes it"


def test_a_table_is_written_between_its_marks_and_nothing_else_is_touched(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n\n<!-- results maze agents -->\nold\n<!-- end -->\nafter <!-- end -->\n")
    assert write_tables([page], results_folder()) == [page]
    text = page.read_text()
    assert text.startswith("before\n\n<!-- results maze agents -->\n| agent | seeds | steps |")
    assert text.endswith("|\n<!-- end -->\nafter <!-- end -->\n")
    assert "old" not in text
    assert "| **RecursivePPO** | 5 | 400 k | 0." in text
    assert write_tables([page], results_folder()) == []


@pytest.mark.parametrize("name", ["maze", "maze agent", ""])
def test_a_place_for_no_table_is_an_error_that_names_the_page_and_lists_the_tables(name: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"<!-- results {name} -->\n<!-- end -->\n")
    with pytest.raises(UserError, match=r"page.md asks for the table .*there are: .*maze agents"):
        write_tables([page], results_folder())


def test_a_table_without_results_says_what_makes_them(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- results algebra agents -->\n<!-- end -->\n")
    with pytest.raises(UserError, match="rao bench algebra"):
        write_tables([page], tmp_path)


def test_a_headline_without_a_score_is_an_empty_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rao_baselines.tables._score", lambda row, task: "")
    page = tmp_path / "page.md"
    page.write_text("<!-- results headlines -->\n<!-- end -->\n")
    write_tables([page], results_folder())
    assert "depth 8 |" in page.read_text()
    assert "****" not in page.read_text()


def test_no_two_figures_have_the_same_name() -> None:
    """One suite's curves once took the place of another's."""
    names = [curves_name(suite, group) for suite in SUITES.values() for group in suite.titles]
    names += [figure.name for suite in SUITES.values() for figure in (*suite.sizes, *suite.sweeps)]
    assert len(set(names)) == len(names)
