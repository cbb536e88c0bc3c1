"""The call stack as a PettingZoo AEC environment: whose turn it is, is the frame that acts."""

from __future__ import annotations

from typing import Any

from gymnasium import spaces
from pettingzoo import AECEnv
from pettingzoo.utils import wrappers

from rao_envs.core.arenas import EnvSource
from rao_envs.core.env import RecursiveEnv
from rao_envs.multiagent.agents import Agents, Obs, make_recursive, over, told, waiting


class FramesAEC(AECEnv[str, Obs, int]):
    """One agent per live frame, one of which acts at a time, as in the single environment.

    Agents are called `frame_0` (the root), `frame_1`, ... in the order in which they open. An agent is rewarded with its frame's local
    outcome when it ends (the root's is the environment's reward), and is terminated then; the root is truncated if the budget is gone.
    `infos` say what the single environment's do, `waiting` beside it; at a frame's end its `is_success`, at the root's also `tree`.

    Args:
        env: the environment; the view's own from now on.
    """

    def __init__(self, env: RecursiveEnv) -> None:
        super().__init__()
        self.env = env
        self.render_mode = env.render_mode
        self._agents = Agents(env)
        self.metadata = self._agents.metadata("aec")
        self.possible_agents = list(self._agents.pool)
        self.agents: list[str] = []
        self.rewards: dict[str, float] = {}
        self._cumulative_rewards: dict[str, float] = {}
        self.terminations: dict[str, bool] = {}
        self.truncations: dict[str, bool] = {}
        self.infos: dict[str, dict[str, Any]] = {}
        self._seen: dict[str, Obs] = {}

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """See `Agents.observation_space`."""
        return self._agents.observation_space(agent)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """See `Agents.action_space`."""
        return self._agents.action_space(agent)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Begin the episode that `gymnasium.make(...).reset(seed=seed)` begins; options that the family does not know are passed over.

        Raises:
            ValueError: a seed out of range, or an option's value that cannot be used.
        """
        observation, info = self.env.reset(seed=seed, options=self._agents.options(options))
        self._agents.begin()
        self.agents = []
        for told_of in (self.rewards, self._cumulative_rewards, self.terminations, self.truncations, self.infos):
            told_of.clear()
        self._seen = {}
        self._skip_agent_selection = None
        self._open(observation, info)

    def step(self, action: int | None) -> None:
        """One step of the frame whose turn it is; None for one that has ended.

        Raises:
            ValueError: not an action.
        """
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._cumulative_rewards[agent] = 0.0
        self._clear_rewards()
        self.infos[agent] = waiting(self.infos[agent])
        for entry in info["returned"]:
            name = self._agents.name(entry["frame_id"])
            self.rewards[name] = entry["reward"]
            self.terminations[name] = True
            self.infos[name] = over(entry)
        if terminated or truncated:
            root = self._agents.name(self.env.base_frame_id)
            self.rewards[root], self.terminations[root], self.truncations[root] = float(reward), terminated, truncated
            self.infos[root] |= {"is_success": info["is_success"], "tree": info["tree"]}
            self._seen[root] = observation
        else:
            self._open(observation, info)
        self._accumulate_rewards()
        self._deads_step_first()

    def observe(self, agent: str) -> Obs:
        """What the agent sees, or saw last.

        Raises:
            KeyError: it is no live agent.
        """
        if agent not in self.agents:
            raise KeyError(f"{agent!r} is not live; live agents: {', '.join(self.agents) or 'none (call reset)'}")
        return self._seen[agent]

    def render(self) -> Any:
        """The single environment's picture."""
        return self.env.render()

    def close(self) -> None:
        """Close the window, if there is one."""
        self.env.close()

    def _open(self, observation: Obs, info: dict[str, Any]) -> None:
        """Let the frame that acts next have its turn; if it is new, so is its agent."""
        name = self._agents.name(info["frame_id"])
        if name not in self.terminations:
            self.agents.append(name)
            self.rewards[name] = self._cumulative_rewards[name] = 0.0
            self.terminations[name] = self.truncations[name] = False
        self.infos[name] = told(info)
        self._seen[name] = observation
        self.agent_selection = name


def aec_env(env: EnvSource, **kwargs: Any) -> AECEnv[str, Obs, int]:
    """Any recursive environment as a PettingZoo AEC environment, one agent per live frame; see `FramesAEC`.

    Args:
        env: a registered id ("RAO/Maze-20x20"), a spec, or a class or function that makes a recursive environment.
        **kwargs: the environment's; `max_cycles` is another name for `budget`.

    Raises:
        gymnasium.error.Error: an unknown id.
        TypeError, ValueError: no recursive environment, or a bad argument.
    """
    view: AECEnv[str, Obs, int] = wrappers.OrderEnforcingWrapper(FramesAEC(make_recursive(env, kwargs)))
    return view
