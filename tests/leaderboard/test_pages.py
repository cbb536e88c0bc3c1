"""leaderboard/PROTOCOL.md says what protocol.py does."""

from __future__ import annotations

import itertools
import json
import math
import re
import shlex
from pathlib import Path

import numpy as np
from scipy import stats

from rao_leaderboard import protocol
from rao_leaderboard.scores import interquartile

LEADERBOARD = Path(__file__).resolve().parents[2] / "leaderboard"
PAGE = (LEADERBOARD / "PROTOCOL.md").read_text(encoding="utf-8")


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
    """The expected largest of k success rates over n episodes, of a policy that solves 0.9."""

    def largest(tries: int, episodes: int) -> float:
        below = stats.binom.cdf(np.arange(episodes), episodes, 0.9) ** tries  # E[max] = sum over x of P(max > x)
        return float((1 - below).sum() / episodes)

    one, five = protocol.EPISODES, protocol.RUNS * protocol.EPISODES
    for episodes in (one, five):
        assert f"{math.sqrt(0.25 / episodes):.3f}" in PAGE and f"n = {episodes})" in PAGE
    assert table("grinding") == [
        [f"{tries:,}", f"{largest(tries, five):.3f}", f"{largest(tries, one):.3f}"] for tries in (1, 10, 100, 1_000)
    ]


def test_what_the_interval_holds_of_it() -> None:
    rng = np.random.default_rng(0)
    together, alone = [], []
    for _ in range(40):
        tries = rng.binomial(protocol.EPISODES, 0.9, size=(10, protocol.RUNS)) / protocol.EPISODES
        together.append(interquartile([tries[tries.sum(axis=1).argmax()].tolist()], protocol.EPISODES))
        alone.append(interquartile([tries.max(axis=0).tolist()], protocol.EPISODES))
    assert sum(each.low <= 0.9 <= each.high for each in together) > 20
    assert sum(each.low <= 0.9 <= each.high for each in alone) < 4


def test_how_ours_were_made() -> None:
    """leaderboard/README.md names every submission of ours, with the command that makes such a one."""
    text = (LEADERBOARD / "README.md").read_text(encoding="utf-8").partition("## Ours")[2]
    lines = [shlex.split(line) for line in re.findall(r"^rao submit (.*)$", text.replace(" \\\n", " "), flags=re.MULTILINE)]
    manifests = {path.parent.name: json.loads(path.read_text()) for path in LEADERBOARD.glob("submissions/*/submission.json")}
    assert sorted(words[words.index("--name") + 1] for words in lines) == sorted(manifests)
    for words in lines:
        made = manifests[words[words.index("--name") + 1]]
        agent, runs = made["agent"], made["runs"]
        options = dict(itertools.pairwise(words))
        assert options["--author"] in made["authors"]
        assert (options["--agent-name"], options["--algorithm"]) == (agent["name"], agent["algorithm"])
        assert ("--onnx" in words) == all(run["artefact"]["onnx"] is not None for run in runs)
        assert (options.get("-e") == "spawn=false") <= (agent["kind"] == "monolithic")
        agents = words[: next(k for k, word in enumerate(words) if word.startswith("-"))]
        if not agents[0].endswith("*"):
            assert len(runs) == len(agents) * int(options.get("--repeat", 1))
