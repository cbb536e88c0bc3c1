"""Independent frames at once, as a PettingZoo parallel environment: a step is a tick of an ideal parallel machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gymnasium import spaces
from gymnasium.error import ResetNeeded
from pettingzoo import ParallelEnv

from rao_envs.core.arenas import EnvSource
from rao_envs.core.env import RecursiveEnv
from rao_envs.multiagent.agents import Agents, Obs, make_recursive, over, told, waiting


@dataclass(eq=False)
class Branch:
    """Frames that take turns: the root, or a detached child, with whatever runs inline below it."""

    env: RecursiveEnv
    parent: Branch | None = None
    acting: str = ""  # whose turn it is
    children: list[Branch] = field(default_factory=list)  # detached, not yet joined; while there are any, nobody has a turn here
    done: bool = False


class FramesParallel(ParallelEnv[str, Obs, int]):
    """One agent per live frame; all that do not depend on each other act at once.

    A spawn action that opens several independent children makes all of them live; they act side by side while their parent waits. A
    waiting agent stays, as it will act again: `infos[agent]["waiting"]` says so, it sees what it saw last, and what it passes is
    ignored. What happens is the single environment's to the bit, and the number of steps is the tree's `critical_path`.

    Names, rewards and endings are those of `FramesAEC`.

    Args:
        env: the environment; the view's own from now on.
    """

    def __init__(self, env: RecursiveEnv) -> None:
        self.env = env
        self.render_mode = env.render_mode
        self._agents = Agents(env)
        self.metadata = self._agents.metadata("parallel") | {"is_parallelizable": True}
        self.possible_agents = list(self._agents.pool)
        self.agents: list[str] = []
        self._branches: list[Branch] = []  # in which somebody has a turn
        self._seen: dict[str, Obs] = {}
        self._infos: dict[str, dict[str, Any]] = {}
        self._rewards: dict[str, float] = {}
        self._terminated: dict[str, bool] = {}
        self._truncated: dict[str, bool] = {}

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """See `Agents.observation_space`."""
        return self._agents.observation_space(agent)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """See `Agents.action_space`."""
        return self._agents.action_space(agent)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict[str, Obs], dict[str, dict[str, Any]]]:
        """Begin the episode that `gymnasium.make(...).reset(seed=seed)` begins; options that the family does not know are passed over.

        Raises:
            ValueError: a seed out of range, or an option's value that cannot be used.
        """
        observation, info = self.env.reset(seed=seed, options=self._agents.options(options))
        self._agents.begin()
        self.agents, self._seen, self._infos = [], {}, {}
        root = Branch(self.env)
        self._branches = [root]
        self._turn(root, observation, info)
        return dict(self._seen), dict(self._infos)

    def step(
        self, actions: Mapping[str, int]
    ) -> tuple[dict[str, Obs], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]:
        """One step of every frame that does not wait.

        Args:
            actions: by live agent; waiting ones may be left out.

        Raises:
            gymnasium.error.ResetNeeded: nobody is live.
            ValueError: an action is missing or not in the action space; nothing has happened then.
        """
        if not self._branches:
            raise ResetNeeded("no agent is live: call reset()")
        chosen = [(branch, self._action(branch, actions)) for branch in self._branches]
        self._rewards = dict.fromkeys(self.agents, 0.0)
        self._terminated = dict.fromkeys(self.agents, False)
        self._truncated = dict.fromkeys(self.agents, False)
        self._branches = []
        for branch, action in chosen:
            self._infos[branch.acting] = waiting(self._infos[branch.acting])
            if branch.env.action_masks()[action] and action in branch.env.spawn_actions and branch.env.batch.fanout(action) > 1:
                self._split(branch, action)
            else:
                self._advance(branch, *branch.env.step(action))
        told_now, seen_now = self._infos, self._seen
        self.agents = [name for name in self.agents if not (self._terminated[name] or self._truncated[name])]
        # What is over is not carried along: an episode may have many more frames than are ever live at once.
        self._infos = {name: told_now[name] for name in self.agents}
        self._seen = {name: seen_now[name] for name in self.agents}
        return seen_now, self._rewards, self._terminated, self._truncated, told_now

    def render(self) -> Any:
        """The root environment's picture; what detached children do is in it once they have returned."""
        return self.env.render()

    def close(self) -> None:
        """Close the window, if there is one."""
        self.env.close()

    def _action(self, branch: Branch, actions: Mapping[str, int]) -> int:
        if branch.acting not in actions:
            raise ValueError(f"{branch.acting} is live and does not wait: pass an action for it")
        return branch.env.check_action(actions[branch.acting])

    def _split(self, branch: Branch, action: int) -> None:
        """Let all children of a spawn be live at once."""
        for env in branch.env.spawn_all(action):
            child = Branch(env, branch)
            branch.children.append(child)
            self._turn(child, *env.reset())
        self._branches += branch.children

    def _advance(self, branch: Branch, observation: Obs, reward: float, terminated: bool, truncated: bool, info: dict[str, Any]) -> None:
        """After a step, or a join, in `branch`."""
        for entry in info["returned"]:
            name = self._agents.name(entry["frame_id"])
            if not self._terminated.get(name, True):  # a detached child was told when it ended, before its parent
                self._rewards[name], self._terminated[name], self._infos[name] = float(entry["reward"]), True, over(entry)
        if not (terminated or truncated):
            self._turn(branch, observation, info)
            self._branches.append(branch)
            return
        branch.done = True
        if branch.parent is None:
            root = self._agents.name(branch.env.base_frame_id)
            self._rewards[root], self._terminated[root], self._truncated[root] = float(reward), terminated, truncated
            self._infos[root] |= {"is_success": info["is_success"], "tree": info["tree"]}
            self._seen[root] = observation
        elif all(child.done for child in branch.parent.children):
            children, branch.parent.children = branch.parent.children, []
            self._advance(branch.parent, *branch.parent.env.join(*(child.env for child in children)))

    def _turn(self, branch: Branch, observation: Obs, info: dict[str, Any]) -> None:
        """Let the frame that acts next in `branch` have its turn; if it is new, so is its agent."""
        new = not self._agents.has(info["frame_id"])
        name = self._agents.name(info["frame_id"])
        if new:
            self.agents.append(name)
            self._rewards[name], self._terminated[name], self._truncated[name] = 0.0, False, False
        self._seen[name], self._infos[name] = observation, told(info)
        branch.acting = name


def parallel_env(env: EnvSource, **kwargs: Any) -> FramesParallel:
    """Any recursive environment as a PettingZoo parallel environment, one agent per live frame; see `FramesParallel`.

    Args:
        env: a registered id ("RAO/Maze-20x20"), a spec, or a class or function that makes a recursive environment.
        **kwargs: the environment's; `max_cycles` is another name for `budget`.

    Raises:
        gymnasium.error.Error: an unknown id.
        TypeError, ValueError: no recursive environment, or a bad argument.
    """
    return FramesParallel(make_recursive(env, kwargs))
