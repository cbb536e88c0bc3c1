"""What a run leaves behind of its distillations, one folder a round, for `rao distill-report` and for people."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stable_baselines3.common.policies import BasePolicy

from rao_agents.checkpoint import _replacing, load_policy, save_policy
from rao_agents.distillation.knowledge import Knowledge

FOLDER = "distillation"
"""Name of the folder inside a run's."""
POLICY, KNOWLEDGE, RECORD = "policy.zip", "knowledge.zip", "round.json"
_NAME = re.compile(r"round_(\d{3,})")


@dataclass(frozen=True)
class Round:
    """One distillation of a run.

    Attributes:
        number: from 1; round 0 is the policy before any distillation.
        folder: where its files are.
        record: what was said about it: at least `timesteps` (environment steps so far); from the callback also `iteration`,
            `strength`, `held_out` (score before), `rolled_back`, and the figures of the distillation.
    """

    number: int
    folder: Path
    record: dict[str, Any]

    def policy(self) -> BasePolicy:
        """The policy at the end of the round (the one that the next round starts from)."""
        return load_policy(self.folder / POLICY, "cpu")

    def knowledge(self) -> Knowledge | None:
        """What was distilled in it; None in round 0, and where it was not kept."""
        path = self.folder / KNOWLEDGE
        return Knowledge.load(path) if path.is_file() else None


class RoundArchive:
    """The folder with the rounds of one run.

    Args:
        folder: made when the first round is written.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def write(self, number: int, policy: BasePolicy, knowledge: Knowledge | None, record: Mapping[str, Any]) -> Path:
        """Write a round; one of that number already there is replaced.

        The record is written last: a round without one is not complete, and `rounds` leaves it out.

        Args:
            number: of the round.
            policy: as it is now.
            knowledge: what was distilled.
            record: plain values; needs `timesteps`.

        Raises:
            ValueError: no `timesteps`, or values that JSON does not know.
        """
        if "timesteps" not in record:
            raise ValueError("a round's record needs `timesteps`")
        folder = self.folder / f"round_{number:03d}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / RECORD).unlink(missing_ok=True)
        save_policy(policy, folder / POLICY)
        if knowledge is None:
            (folder / KNOWLEDGE).unlink(missing_ok=True)
        else:
            knowledge.save(folder / KNOWLEDGE)
        with _replacing(folder / RECORD) as file:
            file.write(json.dumps({"round": number, **record}, indent=1, allow_nan=False).encode() + b"\n")
        return folder

    def rounds(self) -> list[Round]:
        """The complete rounds, in order.

        Raises:
            ValueError: a record is damaged.
        """
        found = []
        for folder in self.folder.iterdir() if self.folder.is_dir() else ():
            name = _NAME.fullmatch(folder.name)
            if name is None or not (folder / RECORD).is_file():
                continue
            record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
            if not isinstance(record, dict) or not isinstance(record.get("timesteps"), int):
                raise ValueError(f"{folder / RECORD} is damaged: it has no `timesteps`")
            found.append(Round(int(name[1]), folder, record))
        return sorted(found, key=lambda one: one.number)
