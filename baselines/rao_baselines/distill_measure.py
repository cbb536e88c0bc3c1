"""What `rao distill-report` measures of a run with self-distillation, round by round (MISSION B11)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import numpy.typing as npt
import torch as th
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.utils import is_masking_supported
from stable_baselines3.common.callbacks import BaseCallback, CallbackList
from stable_baselines3.common.policies import BasePolicy

from rao_agents.distillation.distributions import action_log_probs, normalised
from rao_agents.distillation.knowledge import Knowledge
from rao_agents.distillation.rounds import Round, RoundArchive
from rao_baselines.algorithms import find_algorithm
from rao_baselines.config import Settings
from rao_baselines.environments import environment_arguments, make_training_env
from rao_baselines.errors import UserError
from rao_baselines.evaluation import evaluation_seeds, full, score
from rao_baselines.models import make_model, schedule_callbacks
from rao_baselines.related_tasks import Related, related_tasks
from rao_baselines.runs import RunFolder, read_json
from rao_baselines.spec import training_seed

Report = Callable[[str], None]
"""Told what is being measured."""
NEW_TASK_SEED = 900_001
"""Seeds of the learning on a new task: those of no run (they are far above the few that people use)."""


@dataclass(frozen=True)
class Run:
    """A finished or unfinished run with self-distillation, as its folder has it."""

    path: Path
    algorithm: str
    env_id: str
    seed: int
    settings: Settings
    spawn: bool
    rounds: list[Round]

    @staticmethod
    def read(path: Path) -> Run:
        """The run in a folder.

        Raises:
            UserError: there is none, or it has no rounds.
        """
        folder = RunFolder(path)
        config = read_json(folder.config)
        try:
            spec, settings = config["spec"], Settings(**config["settings"])
            rounds = RoundArchive(folder.rounds).rounds()
            run = Run(path, spec["algorithm"], spec["env_id"], int(spec["seed"]), settings, bool(config["spawn"]), rounds)
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"the run in {path} cannot be read: {error}") from error
        if not rounds:
            raise UserError(f"the run in {path} has no rounds of distillation: train with --distil")
        for one in rounds:
            try:
                one.knowledge()
            except (ValueError, OSError) as error:
                raise UserError(f"round {one.number} of the run in {path} cannot be read: {error}") from error
        if settings.frame_stack > 1:
            raise UserError("rounds of an agent that sees several observations at once cannot be scored: frame_stack must be 1")
        return run

    @property
    def env_kwargs(self) -> dict[str, Any]:
        """What its environment was made with."""
        return environment_arguments(self.settings, self.env_id, self.spawn)


def choose(rounds: Sequence[Round], count: int) -> list[Round]:
    """At most `count` of the rounds, evenly spaced, the first and the last among them (the last alone for one)."""
    if len(rounds) <= count:
        return list(rounds)
    return [rounds[i] for i in sorted({round(i) for i in np.linspace(0, len(rounds) - 1, count)})] if count > 1 else [rounds[-1]]


def zero_shot(run: Run, rounds: Sequence[Round], tasks: Sequence[Related], episodes: int, report: Report) -> list[dict[str, Any]]:
    """Scores of the rounds' policies on each task, none of which but the own one they trained on.

    Returns:
        For each round `round`, `timesteps`, and `scores`: by task name, `full` scores, sampled.
    """
    seeds, result = evaluation_seeds(episodes), []
    for one in rounds:
        policy = one.policy()
        scores = {}
        for task in tasks:
            report(f"round {one.number} on {task.name}")
            scores[task.name] = full(score(policy, task.env_id, seeds, mode="sampled", env_kwargs=task.kwargs))
        result.append({"round": one.number, "timesteps": one.record["timesteps"], "scores": scores})
    return result


# -- learning a new task -------------------------------------------------------------------------------


class _Curve(BaseCallback):
    """Scores the model every `every` steps, and stops the training at the threshold."""

    def __init__(self, task: Related, every: int, episodes: int, threshold: float) -> None:
        super().__init__()
        self.task, self.every, self.threshold = task, every, threshold
        self.seeds = evaluation_seeds(episodes)
        self.points: list[tuple[int, float]] = []

    def _on_rollout_start(self) -> None:
        if not self.points or self.num_timesteps - self.points[-1][0] >= self.every:
            self.add()

    def _on_step(self) -> bool:
        return not self.reached

    @property
    def reached(self) -> bool:
        """Whether the threshold was reached."""
        return bool(self.points) and self.points[-1][1] >= self.threshold

    def add(self) -> None:
        """Score now."""
        found = full(score(self.model.policy, self.task.env_id, self.seeds, mode="sampled", env_kwargs=self.task.kwargs))
        self.points.append((int(self.num_timesteps), float(found["return"] if found["success"] is None else found["success"])))


def learning(
    run: Run, rounds: Sequence[Round], task: Related, *, steps: int, threshold: float, episodes: int, report: Report
) -> list[dict[str, Any]]:
    """How fast each round's policy learns a new task with the run's own algorithm and settings, without distillation.

    Returns:
        For each round `round`, `curve` [[steps, success]] on fixed seeds, and `steps_to_threshold` (linear between points), None where
        it was not reached within `steps`.
    """
    algorithm, result = find_algorithm(run.algorithm), []
    kwargs = {name: value for name, value in task.kwargs.items() if name != "spawn"}
    settings = replace(run.settings, env_kwargs=kwargs, distillation=None, n_timesteps=steps)
    for one in rounds:
        report(f"round {one.number} learns {task.name}")
        env = make_training_env(task.env_id, settings, run.spawn, training_seed(NEW_TASK_SEED))
        try:
            model = make_model(algorithm, settings, env, seed=training_seed(NEW_TASK_SEED), device="cpu")
            model.policy.load_state_dict(one.policy().state_dict())
            curve = _Curve(task, max(steps // 10, 1), episodes, threshold)
            options: dict[str, Any] = {"use_masking": is_masking_supported(env)} if isinstance(model, MaskablePPO) else {}
            model.learn(steps, callback=CallbackList([*schedule_callbacks(settings, model), curve]), log_interval=10**9, **options)
            if not curve.reached and curve.points[-1][0] < model.num_timesteps:
                curve.add()
        finally:
            env.close()
        points = [list(point) for point in curve.points]
        result.append({"round": one.number, "curve": points, "steps_to_threshold": crossing(points, threshold)})
    return result


def crossing(points: Sequence[Sequence[float]], threshold: float) -> int | None:
    """Where a curve first reaches `threshold`, linear between its points; None if it does not."""
    before: Sequence[float] | None = None
    for steps, value in points:
        if value >= threshold:
            if before is None or value == before[1]:
                return int(steps)
            return round(before[0] + (threshold - before[1]) / (value - before[1]) * (steps - before[0]))
        before = (steps, value)
    return None


# -- decisive states -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Visited:
    """States that a policy met. N rows.

    Attributes:
        observations: by key ("" for plain ones), (N, *shape).
        masks: bool (N, actions), or None.
        actions: what was done, int64 (N,).
        success: of the acting frame (or, where there are none, of the episode): 1, 0, or -1 where it is not known, int8 (N,).
        depth: of the acting frame, int64 (N,).
    """

    observations: dict[str, npt.NDArray[Any]]
    masks: npt.NDArray[np.bool_] | None
    actions: npt.NDArray[np.int64]
    success: npt.NDArray[np.int8]
    depth: npt.NDArray[np.int64]


def visit(policy: BasePolicy, task: Related, count: int, rng: np.random.Generator) -> tuple[Visited, list[str]]:
    """Let `policy` act (sampled) until it has met `count` states, whole episodes; also the actions' names."""
    env = gym.make(task.env_id, **task.kwargs)
    names = getattr(env.unwrapped, "action_names", None) or [str(i) for i in range(int(policy.action_space.n))]  # type: ignore[attr-defined]
    rows: dict[str, list[Any]] = {}
    masks: list[Any] = []
    actions: list[int] = []
    verdicts: list[int] = []
    depths: list[int] = []
    try:
        while len(actions) < count:
            obs, info = env.reset(seed=int(rng.integers(2**31)))
            frames: list[int] = []
            results: dict[int, int] = {}
            over = False
            while not over:
                parts = obs if isinstance(obs, dict) else {"": obs}
                for key, value in parts.items():
                    rows.setdefault(key, []).append(np.array(value))
                mask = info.get("action_mask", parts.get("action_mask"))
                masks.append(None if mask is None else np.asarray(mask, np.bool_))
                with th.no_grad():
                    chance = action_log_probs(
                        policy, {k: v[None] for k, v in parts.items()}, None if mask is None else masks[-1][None]
                    ).exp()
                action = int(rng.choice(chance.shape[1], p=_sum_to_one(chance[0].cpu().numpy())))
                frames.append(int(info.get("frame_id", 0)))
                depths.append(int(info.get("depth", 0)))
                actions.append(action)
                obs, _, terminated, truncated, info = env.step(action)
                results |= {int(entry["frame_id"]): int(bool(entry["success"])) for entry in info.get("returned", ())}
                over = terminated or truncated
            results[0] = int(bool(info["is_success"])) if "is_success" in info else results.get(0, -1)
            verdicts += [results.get(frame, -1) for frame in frames]
    finally:
        env.close()
    known = None if any(mask is None for mask in masks) else np.stack(masks)
    observations = {key: np.stack(values) for key, values in rows.items()}
    visited = Visited(observations, known, np.array(actions), np.array(verdicts, np.int8), np.array(depths))
    return visited, [str(name) for name in names]


def _sum_to_one(chance: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    exact = chance.astype(np.float64)
    return np.asarray(exact / exact.sum())


@th.no_grad()
def decisiveness(policy: BasePolicy, visited: Visited) -> npt.NDArray[np.float64]:
    """How much each state decides what is done, in nats, (N,): the divergence of the policy there from its average over all states.

    The average is restricted to what is allowed there, so that masks alone decide nothing.
    """
    log_probs = action_log_probs(policy, visited.observations, visited.masks)
    average = normalised(log_probs.exp().mean(dim=0).clamp(min=1e-12).log().expand_as(log_probs), visited.masks)
    result: npt.NDArray[np.float64] = (log_probs.exp() * (log_probs - average)).sum(dim=1).clamp(min=0.0).double().cpu().numpy()
    return result


@th.no_grad()
def embedding(policy: BasePolicy, knowledge: Knowledge | None, visited: Visited) -> tuple[npt.NDArray[np.float64], str]:
    """The states as vectors, and what made them.

    That is the knowledge's embedding where it has one of its own, and the policy's last hidden layer otherwise.
    """
    found = None if knowledge is None else knowledge.embed(visited.observations)
    if found is not None and knowledge is not None and knowledge.skills is None:  # which skill is too coarse for a map
        return found.double().cpu().numpy(), f"the {knowledge.kind} embedding"
    from rao_agents.distillation.observations import as_policy_input

    checked: Any = policy
    features = checked.extract_features(as_policy_input(visited.observations))
    if not checked.share_features_extractor:
        features = features[0]
    return checked.mlp_extractor.forward_actor(features).double().cpu().numpy(), "the policy's last hidden layer"


def map_states(vectors: npt.NDArray[np.float64], seed: int) -> npt.NDArray[np.float64]:
    """t-SNE of `vectors` (n, d): places in the plane (n, 2), the same for the same seed.

    Raises:
        UserError: scikit-learn is missing; the message names the extra.
    """
    try:
        from sklearn.decomposition import PCA
        from sklearn.manifold import TSNE
    except ImportError as error:
        raise UserError(f'the map of states needs scikit-learn ({error}). Install it with: pip install "rao-envs[distillation]"') from error
    scaled = (vectors - vectors.mean(axis=0)) / np.maximum(vectors.std(axis=0), 1e-9)
    if scaled.shape[1] > 50:  # as its authors advise
        scaled = PCA(min(50, len(scaled)), random_state=seed).fit_transform(scaled)
    perplexity = min(30.0, max((len(scaled) - 1) / 3, 1.0))
    places: npt.NDArray[np.float64] = TSNE(2, perplexity=perplexity, init="pca", random_state=seed, n_jobs=1).fit_transform(scaled)
    return places.astype(np.float64)


def state_map(policy: BasePolicy, knowledge: Knowledge | None, task: Related, states: int, report: Report, seed: int = 0) -> dict[str, Any]:
    """The map of the most decisive half of the states that the policy meets.

    Returns:
        `x`, `y`, `action`, `success`, `depth`, `decisiveness` (n,) as lists, the action `names`, and `of`: what was mapped.
    """
    report("the states that decide")
    rng = np.random.default_rng(seed)
    visited, names = visit(policy, task, 2 * states, rng)
    amount = decisiveness(policy, visited)
    top = np.sort(np.argsort(-amount, kind="stable")[:states])
    chosen = Visited(
        {key: value[top] for key, value in visited.observations.items()},
        None if visited.masks is None else visited.masks[top],
        visited.actions[top],
        visited.success[top],
        visited.depth[top],
    )
    vectors, what = embedding(policy, knowledge, chosen)
    places = map_states(vectors, seed)
    return {
        "x": places[:, 0].round(3).tolist(),
        "y": places[:, 1].round(3).tolist(),
        "action": chosen.actions.tolist(),
        "success": chosen.success.tolist(),
        "depth": chosen.depth.tolist(),
        "decisiveness": amount[top].round(4).tolist(),
        "names": names,
        "of": what,
    }


# -- all -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Options:
    """How much is measured.

    Attributes:
        rounds: scored at most, evenly spaced.
        episodes: fixed seeds of each score.
        tasks: besides the own one; empty for those of the family.
        new_task: what is learned anew; None for the first other member, or else the first other size.
        learn_rounds: rounds that learn it, at most; 0 leaves this out.
        learn_steps: environment steps that each may take.
        threshold: success to be reached.
        states: points of the map; 0 leaves it out.
    """

    rounds: int = 6
    episodes: int = 100
    tasks: tuple[str, ...] = ()
    new_task: str | None = None
    learn_rounds: int = 3
    learn_steps: int = 20_000
    threshold: float = 0.8
    states: int = 1_000


def measure(run: Run, options: Options, report: Report = lambda text: None) -> dict[str, Any]:
    """Everything a report shows, as plain values.

    Raises:
        UserError: a task that cannot be made or that the agent cannot act in.
    """
    tasks = related_tasks(run.env_id, run.env_kwargs, options.tasks)
    new = _new_task(run, tasks, options)
    last = run.rounds[-1]
    policy, knowledge = last.policy(), _latest(run.rounds)
    sizes = [_size(one) for one in run.rounds]
    result: dict[str, Any] = {
        "run": {"path": str(run.path), "algorithm": run.algorithm, "env_id": run.env_id, "seed": run.seed},
        "options": {"episodes": options.episodes, "learn_steps": options.learn_steps, "threshold": options.threshold},
        "tasks": [{"name": task.name, "kind": task.kind} for task in tasks],
        "rounds": sizes,
        "policy_parameters": sum(parameter.numel() for parameter in policy.parameters()),
        "zero_shot": zero_shot(run, choose(run.rounds, options.rounds), tasks, options.episodes, report),
        "learning": None,
        "map": None,
        "knowledge": None if knowledge is None else knowledge.inspect(),
    }
    if new is not None and options.learn_rounds > 0:
        chosen = choose(run.rounds, options.learn_rounds)
        found = learning(
            run, chosen, new, steps=options.learn_steps, threshold=options.threshold, episodes=min(options.episodes, 50), report=report
        )
        result["learning"] = {"task": new.name, "rounds": found}
    if options.states > 0:
        result["map"] = state_map(policy, knowledge, tasks[0], options.states, report)
    return result


def _new_task(run: Run, tasks: Sequence[Related], options: Options) -> Related | None:
    if options.new_task is not None:
        found = related_tasks(run.env_id, run.env_kwargs, (options.new_task,))
        if len(found) < 2:
            raise UserError(f"{options.new_task} is what the run was trained on; name another task to learn")
        return found[1]
    others = [task for task in tasks if task.kind == "member"] + [task for task in tasks if task.kind == "size"]
    return others[0] if others else None


def _latest(rounds: Sequence[Round]) -> Knowledge | None:
    for one in reversed(rounds):
        if (found := one.knowledge()) is not None:
            return found
    return None


def _size(one: Round) -> dict[str, Any]:
    """A round's record, and the size of what was distilled."""
    knowledge = one.knowledge()
    about = None
    if knowledge is not None:
        about = {"kind": knowledge.kind, "parameters": knowledge.parameters(), "depth": knowledge.depth(), "figures": knowledge.figures}
    return {**one.record, "round": one.number, "knowledge": about}
