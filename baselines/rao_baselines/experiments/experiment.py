"""What an experiment is, and what a suite of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from rao_baselines.spec import TrainSpec


@dataclass(frozen=True)
class Experiment:
    """One row: an algorithm under one condition, over several seeds.

    Args:
        name: of the row, unique within its suite.
        label: as figures and tables call it.
        group: rows of one group are compared with each other and drawn in one figure.
        algorithm: its name.
        env_id: what it trains on.
        seeds: how many runs.
        steps: of each.
        overrides: settings on top of the algorithm's file.
        scored_on: the task its curve and final score are of (`rao_baselines.environments.parse_task`); by default what it trains on.
        transfer: further tasks that the final model is scored on.
        transfer_episodes: fixed seeds of those scores, where the usual number would take too long.
        arguments: of the environment, for tasks that it is scored on; tables and figures leave them to the label.
    """

    name: str
    label: str
    group: str
    algorithm: str
    env_id: str
    seeds: int
    steps: int
    overrides: dict[str, Any] = field(default_factory=dict)
    scored_on: str = ""
    transfer: tuple[str, ...] = ()
    transfer_episodes: int | None = None
    arguments: str = ""

    @property
    def task(self) -> str:
        """What its scores are of, first of all; as tables and figures call it."""
        return self.plain(self.scored_on or self.env_id)

    def plain(self, task: str) -> str:
        """`task` as other rows call it, without this row's own arguments."""
        return task.removesuffix(self.arguments).removesuffix("&") if self.arguments else task

    def specs(self, root: Path, *, scale: float = 1.0, episodes: int = 500) -> list[TrainSpec]:
        """One run per seed, in folders under `root`; `scale` shortens all of them for a trial."""
        steps = max(int(self.steps * scale), 1)
        return [
            TrainSpec(
                algorithm=self.algorithm,
                env_id=self.env_id,
                seed=seed,
                steps=steps,
                overrides=dict(self.overrides),
                out=str(root / self.name / str(seed)),
                eval_every=max(steps // 20, 1),
                eval_episodes=min(episodes, 100),
                final_episodes=episodes,
                scored_on=self.scored_on,
                transfer=list(self.transfer),
                transfer_episodes=self.transfer_episodes,
                name=self.name,
            )
            for seed in range(self.seeds)
        ]


class Sizes(NamedTuple):
    """A figure of success (or of another measure) against the size of the task, for the final models of a group."""

    name: str  # of its file
    title: str
    group: str
    tasks: dict[str, str]  # task -> what the axis says
    measure: str = "success"  # or one of an evaluation's means: "nodes", "deepest", "steps", "critical_path"
    axis: str = ""  # what the sizes are


class Sweep(NamedTuple):
    """A figure and a table of success against something that rows differ in."""

    name: str  # of the figure's file, and of the table
    title: str
    axis: str  # what the rows differ in
    series: dict[str, dict[str, str]]  # label -> what the axis says -> name of the row


class Comparison(NamedTuple):
    """Choices side by side on several families: a figure of bars, and per family learning curves and a table called "NAME FAMILY".

    On each family every choice is a row called FAMILY_CHOICE; the first choice of a question is the setting that it starts from.
    """

    name: str
    families: dict[str, str]  # what the rows' names begin with (also their group) -> what figures and tables call it
    questions: dict[str, dict[str, str]]  # what is asked -> label of each choice -> what the rows' names end with

    def row(self, family: str, choice: str) -> str:
        """The name of a row."""
        return f"{family}_{choice}"


class Table(NamedTuple):
    """A table of success in the documentation: `rao_baselines.tables`."""

    name: str
    groups: tuple[str, ...]
    columns: dict[str, str]  # heading -> task
    timed: str = ""  # heading of the column with the steps to the strongest monolithic agent's score; none if empty
    paths: bool = False  # steps and critical path instead of success
    frames: bool = False  # frames and depth used instead of success


class Suite(NamedTuple):
    """The experiments of a family: `rao bench NAME`."""

    summary: str  # for --help
    rows: tuple[Experiment, ...]
    titles: dict[str, str]  # of each group's learning curves
    sizes: tuple[Sizes, ...] = ()
    tables: tuple[Table, ...] = ()
    sweeps: tuple[Sweep, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    trained_on: str = ""  # in the README's table, which shows
    headlines: dict[str, str] | None = None  # these tasks, by what it calls them
    prefix: str = ""  # of the names of its groups' figures; empty: they are named after the first group's task
