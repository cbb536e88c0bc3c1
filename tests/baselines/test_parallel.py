"""`rao bench parallel` and `rao bench profile`: what is measured, kept, fitted and written."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rao_baselines import parallel_model, parallel_speed, parallel_tables, profile
from rao_baselines.parallel_model import SPREAD, Costs, fit, wall_clock
from rao_envs.longseq.reference import RecursiveSolver


def leaves(step: float, packet: float) -> list[dict[str, Any]]:
    """Measurements as the model has them."""
    rows = []
    for milliseconds in (0.0, 1.0, 10.0):
        costs = Costs(step, packet, 0.0).costlier(milliseconds)
        seconds = {"batched": 200 * costs.step} | {
            parallel_tables.ray_name(n): wall_clock(costs, 200, n, SPREAD * n) for n in parallel_speed.WORKERS
        }
        rows.append({"milliseconds": milliseconds, "steps": 200, "seconds": seconds})
    return rows


def test_the_model_finds_the_costs_that_it_was_made_with() -> None:
    costs = fit(leaves(0.002, 0.005), parallel_tables.ray_name(1), "batched")
    assert costs == pytest.approx(Costs(0.002, 0.005, 0.0))


def test_the_model_by_hand() -> None:
    # 10 packets, one after the other packed; 3 rounds on 4 workers of 0.5 s latency and 20 steps of 0.1 s.
    assert wall_clock(Costs(0.1, 0.01, 0.5), 200, 4, 10) == pytest.approx(10 * 0.01 + 3 * (0.5 + 20 * 0.1))


def test_a_costly_agent_does_the_same_and_takes_its_time() -> None:
    from rao_agents import solve

    costly = parallel_speed.Costly(RecursiveSolver(), 2.0)
    slow, fast = solve(costly, "RAO/LongSeq-10k-v0", 1), solve(RecursiveSolver(), "RAO/LongSeq-10k-v0", 1)
    assert slow.same_as(fast) and slow.episode is not None
    assert slow.seconds > 0.002 * slow.episode.steps


def test_the_command(rao: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_speed, "REPEATS", 1)
    monkeypatch.setitem(parallel_speed.SUBJECTS, "longseq-1k", parallel_speed.SUBJECTS["longseq-1k"]._replace(trees=2))
    out = tmp_path / "parallel.json"
    done = rao("bench", "parallel", "longseq-1k", "--no-ray", "--out", out)
    assert done.code == 0 and "Long sequence, 1 k records" in done.out and (tmp_path / "parallel-growth.png").is_file()
    done = rao("bench", "parallel", "longseq-1k", "--no-ray", "--out", out, "--json")
    (found,) = done.json["subjects"].values()
    assert found["seconds"].keys() == {"predict", "sequential", "batched"} and found["steps"] >= found["critical_path"] > 0
    assert rao("bench", "parallel", "longsek-1k").code == 2


def test_what_stands_in_the_way_is_said_before_anything_is_measured(
    rao: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(*_: Any, **__: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr(parallel_speed, "measure", measure)
    out = tmp_path / "other.json"
    for content in ("[]", '{"subjects": {}}'):
        out.write_text(content)
        done = rao("bench", "parallel", "algebra", "--no-ray", "--out", out)
        assert done.code != 0 and "holds something else" in done.err and out.read_text() == content
    monkeypatch.setitem(sys.modules, "ray", None)
    done = rao("bench", "parallel", "algebra", "--out", tmp_path / "new.json")
    assert done.code != 0 and "rao-envs[ray]" in done.err and "--no-ray" in done.err


def test_runners_that_disagree_are_not_published(monkeypatch: pytest.MonkeyPatch) -> None:
    from rao_agents.runners import Solution

    monkeypatch.setattr(Solution, "same_as", lambda self, other: False)
    monkeypatch.setattr(parallel_speed, "REPEATS", 1)
    subject = parallel_speed.SUBJECTS["longseq-1k"]._replace(trees=1)
    with pytest.raises(RuntimeError, match="gave other results"):
        parallel_speed.measure({"longseq-1k": subject}, ray=False, tick=lambda what: None)


def test_tables_of_nothing_have_headings_only() -> None:
    for make in parallel_tables.TABLES.values():
        assert len(make(parallel_tables.NOTHING)) == 1
    assert len(profile.table({})) == 1
    kept = {"subjects": {}, "leaves": leaves(0.001, 0.002)}
    assert [len(row) for row in parallel_tables.leaves(kept)] == [7] * 4
    assert len(parallel_tables.scale(kept)) == 1 + 9
    assert parallel_model.SPREAD == 4


def test_the_profile_adds_up() -> None:
    found = profile.measure("recursive_ppo", 0.2)
    assert sum(found["shares"].values()) == pytest.approx(1.0)
    assert min(found["shares"].values()) >= 0 and found["shares"]["update: rest"] > 0.1
    rows = profile.table({"algorithms": {"recursive_ppo": found}})
    assert [row[0] for row in rows[1:-2]] == list(profile.PARTS)


@pytest.mark.parametrize("what", ["pipe", "device"])
def test_no_file_takes_the_place_of_a_device(rao: Callable[..., Any], tmp_path: Path, what: str) -> None:
    """Written under another name and renamed, it once did: /dev/full was a file afterwards."""
    from rao_envs import Episode, Evaluation
    from rao_envs.core.files import replacing

    path = tmp_path / "here.json" if what == "pipe" else Path(os.devnull)
    if what == "pipe":
        os.mkfifo(path)
    mode = path.stat().st_mode
    with pytest.raises(OSError, match="is a device or a pipe"), replacing(path):
        pass
    episode = Episode(0, True, 1.0, 1, 1, 0, 0, 1, np.zeros(1, np.int64))
    with pytest.raises(OSError, match="is a device or a pipe"):
        Evaluation("Any-v0", {}, "agent", True, 2, "0", (episode,)).save(path)
    done = rao("bench", "parallel", "longseq-1k", "--no-ray", "--out", path)
    assert done.code == 2 and "is a device or a pipe" in done.err
    assert path.stat().st_mode == mode
