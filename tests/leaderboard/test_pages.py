"""leaderboard/PROTOCOL.md says what protocol.py does."""

from __future__ import annotations

import math
import re
from pathlib import Path

from scipy import integrate, stats

from rao_leaderboard import protocol

PAGE = (Path(__file__).resolve().parents[2] / "leaderboard" / "PROTOCOL.md").read_text(encoding="utf-8")


def table(name: str) -> list[list[str]]:
    found = re.search(rf"<!-- {name} -->\n(.*?)<!-- end -->", PAGE, re.DOTALL)
    assert found is not None
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in found[1].splitlines()[2:]]


def test_the_tasks() -> None:
    families = dict.fromkeys(task.family for task in protocol.TASKS)

    def ids(family: str, track: str) -> str:
        return ", ".join(f"`{task.env_id}`" for task in protocol.TASKS if (task.family, task.track) == (family, track))

    assert table("tasks") == [[family, ids(family, "standard"), ids(family, "zero-shot")] for family in families]


def test_the_counts() -> None:
    assert f"# The protocol, version {protocol.PROTOCOL}\n" in PAGE
    assert f"at most {protocol.STANDARD_BUDGET:,} environment steps" in PAGE
    assert f"and {protocol.EPISODES} episodes of each run" in PAGE and protocol.RUNS == 5 and "Five training runs" in PAGE
    assert f"learning curve reaches {protocol.THRESHOLD}:" in PAGE
    assert f"protocol={protocol.PROTOCOL} artefact=DIGEST" in PAGE


def test_what_trying_again_gains() -> None:
    episodes = protocol.RUNS * protocol.EPISODES
    assert f"{math.sqrt(0.25 / episodes):.3f}" in PAGE
    error = math.sqrt(0.9 * 0.1 / episodes)
    rows = []
    for tries in (1, 10, 100, 1_000):
        largest, _ = integrate.quad(lambda x, k=tries: x * k * stats.norm.pdf(x) * stats.norm.cdf(x) ** (k - 1), -10, 10, limit=200)
        rows.append([f"{tries:,}", f"{abs(largest):.2f}", f"{0.9 + largest * error:.3f}"])
    assert table("grinding") == rows
