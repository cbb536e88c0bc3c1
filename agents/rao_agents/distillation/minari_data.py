"""Episodes to and from Minari datasets, so that expert data from elsewhere can be used (MISSION B2, B9).

What Gymnasium's format has no place for (frames, masks, values, ...) is kept among the infos, one entry for each step.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from rao_agents.distillation.episodes import COLUMNS, NO_SEED, PLAIN, UNKNOWN, Episode
from rao_agents.tap import masks_from_observation

STEP_INFOS = ("log_probs", "values", "advantages", "frame_id", "depth")
ABOUT = ("task", "seed", "success", "iteration", "expert")
VERDICTS, MASKS = "frame_success", "action_masks"


def episodes_to_minari(
    episodes: Sequence[Episode], dataset_id: str, observation_space: spaces.Space[Any], action_space: spaces.Discrete, **about: Any
) -> Any:
    """Write `episodes` as a Minari dataset; returns it.

    The observation after the last step was not remembered: the last one stands there again, as the format asks for one.

    Args:
        episodes: at least one.
        dataset_id: such as "maze/self-v0".
        observation_space: of the observations.
        action_space: of the actions.
        about: what `minari.create_dataset_from_buffers` takes besides, such as `env`, `author` or `description`.

    Raises:
        ImportError: Minari is not installed.
        ValueError: there are no episodes, or a dataset of that name is there already.
    """
    minari = _minari()
    if not episodes:
        raise ValueError("there are no episodes to write")
    collector = importlib.import_module("minari.data_collector")
    buffers = [
        collector.EpisodeBuffer(
            id=number,
            seed=None if episode.seed == NO_SEED else int(episode.seed),
            observations=_observations(episode),
            actions=episode.actions + action_space.start,
            rewards=episode.rewards.astype(np.float64).tolist(),
            terminations=[False] * (len(episode) - 1) + [True],
            truncations=[False] * len(episode),
            infos=_infos(episode),
        )
        for number, episode in enumerate(episodes)
    ]
    with warnings.catch_warnings():
        # Who wrote the data and where their code is: a matter of `about`.
        warnings.filterwarnings("ignore", category=UserWarning, module="minari")
        return minari.create_dataset_from_buffers(
            dataset_id, buffers, observation_space=observation_space, action_space=action_space, **about
        )


def episodes_from_minari(dataset: Any) -> list[Episode]:
    """The episodes of a Minari dataset, marked as experts'.

    A dataset from elsewhere needs Discrete actions. What it does not say is filled in: every episode is one frame, masks are those of
    the observation (`action_mask`) if it has any, and success is that of the infos (`success`, `is_success`) at the end.

    Args:
        dataset: a dataset, or the name of a local one.

    Raises:
        ImportError: Minari is not installed.
        ValueError: no such dataset, or its actions are not Discrete.
    """
    minari = _minari()
    if isinstance(dataset, str):
        try:
            dataset = minari.load_dataset(dataset)
        except (OSError, ValueError, KeyError) as error:
            raise ValueError(f"there is no local Minari dataset {dataset!r}: {error}") from error
    space = dataset.action_space
    if not isinstance(space, spaces.Discrete):
        raise ValueError(f"distillation needs Discrete actions, those of the dataset are {space}")
    return [_episode(data, space) for data in dataset.iterate_episodes() if len(data.actions)]


def _minari() -> Any:
    try:
        return importlib.import_module("minari")
    except ImportError as error:
        raise ImportError(f'datasets need Minari ({error}). Install it with: pip install "rao-envs[distillation]"') from error


def _observations(episode: Episode) -> Any:
    longer = {key: np.concatenate([array, array[-1:]]) for key, array in episode.observations.items()}
    return longer.get(PLAIN, longer)


def _infos(episode: Episode) -> dict[str, npt.NDArray[Any]]:
    columns: dict[str, npt.NDArray[Any]] = {name: getattr(episode, name) for name in STEP_INFOS}
    columns[VERDICTS] = episode.step_success()
    if episode.action_masks is not None:
        columns[MASKS] = episode.action_masks
    verdict = UNKNOWN if episode.success is None else int(episode.success)
    for name, value in zip(ABOUT, (episode.task, episode.seed, verdict, episode.iteration, int(episode.expert)), strict=True):
        columns[name] = np.full(len(episode), value, np.int64)
    return {name: np.concatenate([array, array[-1:]]) for name, array in columns.items()}


def _episode(data: Any, space: spaces.Discrete) -> Episode:
    n = len(data.actions)
    infos: Mapping[str, Any] = data.infos or {}
    given = data.observations if isinstance(data.observations, Mapping) else {PLAIN: data.observations}
    observations = {key: np.asarray(array)[:n] for key, array in given.items()}

    def column(name: str) -> npt.NDArray[Any]:
        found = infos.get(name)
        return np.zeros(n, COLUMNS[name]) if found is None else np.asarray(found)[:n].astype(COLUMNS[name])

    def about(name: str, default: int) -> int:
        found = infos.get(name)
        return default if found is None else int(np.asarray(found).reshape(-1)[-1])

    masks = infos.get(MASKS)
    if masks is not None:
        masks = np.asarray(masks)[:n].astype(np.bool_)
    elif PLAIN not in observations:
        masks = masks_from_observation(observations, int(space.n))
    frame_id = column("frame_id")
    verdicts = np.full(n, UNKNOWN) if infos.get(VERDICTS) is None else np.asarray(infos[VERDICTS])[:n]
    frames, first = np.unique(frame_id, return_index=True)
    known = verdicts[first] != UNKNOWN
    success = about("success", about("is_success", UNKNOWN))
    rewards = np.asarray(data.rewards, np.float32)
    return Episode(
        observations=observations,
        actions=np.asarray(data.actions).astype(np.int64).reshape(-1) - int(space.start),
        action_masks=masks,
        log_probs=column("log_probs"),
        values=column("values"),
        rewards=rewards,
        advantages=column("advantages"),
        frame_id=frame_id,
        depth=column("depth"),
        frames=frames[known].astype(np.int64),
        frame_success=verdicts[first][known].astype(np.bool_),
        task=about("task", int(data.id)),
        seed=about("seed", NO_SEED),
        success=None if success == UNKNOWN else bool(success),
        ret=float(rewards.sum(dtype=np.float64)),
        iteration=about("iteration", 0),
        expert=True,
    )
