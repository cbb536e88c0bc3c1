"""The loop: collect, distil, inject, and again (MISSION B1)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
from gymnasium import Env
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv

from rao_agents.checkpoint import File
from rao_agents.distillation.buffer import ExperienceBuffer, draw
from rao_agents.distillation.distillers.base import Distiller, NotEnoughError
from rao_agents.distillation.distillers.student import StudentDistiller
from rao_agents.distillation.distributions import check_policy
from rao_agents.distillation.episodes import Episode, States
from rao_agents.distillation.files import read_state, write_state
from rao_agents.distillation.guard import Guard, HeldOut
from rao_agents.distillation.injection import GradientInjection, Pool
from rao_agents.distillation.injectors import AuxiliaryLoss, Injection, Injector
from rao_agents.distillation.knowledge import Knowledge
from rao_agents.distillation.recorder import EpisodeRecorder
from rao_agents.distillation.rounds import RoundArchive
from rao_agents.distillation.triggers import Interval, Moment, Trigger
from rao_agents.distillation.weighting import Weigh, Weighting
from rao_agents.distillation.worker import DistillationWorker

PREFIX = "distill/"


class SelfDistillationCallback(BaseCallback):
    """Recursive self-distillation: while it learns, the agent is taught by what was distilled from its own experience.

    A callback for `learn` of RecursivePPO, RecursiveA2C, MaskablePPO, PPO and A2C with Discrete actions; neither the algorithm nor its
    loop is changed. Whole episodes are remembered; when the trigger says so, the distiller makes knowledge out of them, and the
    injectors put it into the policy: by a gradient beside the algorithm's own in every step of its optimiser, or by changing weights.
    With a guard, a round that does harm is taken back.

    Every random number comes from a generator of its own, so a run whose injectors do nothing ends exactly as one without the
    callback; the asynchronous mode alone is not reproducible, as it depends on how long things take.

    Logged (besides what the injectors and the knowledge report, under `distill/` too):

    - `distill/rounds`: rounds so far
    - `distill/strength`: the guard's factor of everything that is injected; 1 without one
    - `distill/loss`: the auxiliary loss, mean over the optimiser's steps of the last update
    - `distill/gradient_norm`: of its gradient, before clipping
    - `distill/gradient_cosine`: between its gradient and the algorithm's; below 0 they pull apart
    - `distill/kl`, `distill/imitation`, `distill/value_error`, `distill/weight`: parts of `AuxiliaryLoss`
    - `distill/buffer_steps`, `distill/buffer_episodes`, `distill/buffer_success`: what is remembered, and the share of successes
    - `distill/knowledge_parameters`: size of the knowledge
    - `distill/student_kl`, `distill/student_agreement`: how near a student is to its teacher
    - `distill/seconds`: that the last round took (0 where another process did the work)
    - `distill/held_out`: the guard's latest score
    - `distill/rollbacks`: rounds that were taken back

    Args:
        distiller: makes knowledge; by default `StudentDistiller(student=None)`, an average of the policy's own past.
        injectors: put it into the policy; by default `AuxiliaryLoss(weight=0.1, teacher=0.0, imitation=1.0)`.
        trigger: says when; by default every 5,000 environment steps.
        buffer: remembers; by default an `ExperienceBuffer` of 50,000 steps.
        guard: takes back what did harm; by default one on `eval_env`, if there is one, and none otherwise.
        eval_env: held-out environment for the default guard, not the one trained on.
        weighting: which remembered states are injected, and how often: `Weighting`, or any function from `States` to weights; by default
            those of frames that succeeded, half as often for every ten policy iterations that they are old.
        anchors: experts' episodes.
        anchor_share: share of the injected states that come from them, in [0, 1].
        pool_size: states that a round injects, drawn anew for each round.
        batch_size: of them in each step of the optimiser.
        every: steps of the optimiser between two injections.
        max_grad_norm: bound of the injected gradient's norm; None for no bound.
        asynchronous: distil in a process of its own, which never blocks the training; the knowledge is injected when it is ready.
        knowledge: to inject from the first rollout on, before anything was distilled.
        archive: folder in which every round's policy and knowledge are kept (`RoundArchive`), for `rao distill-report`.
        seed: of all that is random here.
        verbose: 1 tells of every round.

    Raises:
        ValueError: numbers out of range.
    """

    def __init__(
        self,
        distiller: Distiller | None = None,
        injectors: Sequence[Injector] | None = None,
        trigger: Trigger | None = None,
        buffer: ExperienceBuffer | None = None,
        guard: Guard | None = None,
        eval_env: VecEnv | Env[Any, Any] | None = None,
        weighting: Weigh | None = None,
        anchors: Iterable[Episode] = (),
        anchor_share: float = 0.0,
        pool_size: int = 8192,
        batch_size: int = 256,
        every: int = 1,
        max_grad_norm: float | None = 0.5,
        asynchronous: bool = False,
        knowledge: Knowledge | None = None,
        archive: RoundArchive | str | None = None,
        seed: int = 0,
        verbose: int = 0,
    ) -> None:
        super().__init__(verbose)
        if pool_size < 1 or batch_size < 1 or every < 1:
            raise ValueError(f"pool_size, batch_size and every must be at least 1, got {pool_size!r}, {batch_size!r}, {every!r}")
        if not 0 <= anchor_share <= 1:
            raise ValueError(f"anchor_share must lie in [0, 1], got {anchor_share!r}")
        self.distiller = StudentDistiller(student=None) if distiller is None else distiller
        self.injectors: list[Injector] = [default_injector()] if injectors is None else list(injectors)
        self.trigger = Interval() if trigger is None else trigger
        self.buffer = ExperienceBuffer(seed=seed) if buffer is None else buffer
        self.guard = Guard(HeldOut(eval_env)) if guard is None and eval_env is not None else guard
        self.weighting: Weigh = default_weighting() if weighting is None else weighting
        self.buffer.extend(anchor.as_expert() for anchor in anchors)
        if anchor_share and not self.buffer.experts:
            raise ValueError("anchor_share needs anchors, which are experts' episodes")
        self.anchor_share, self.pool_size, self.batch_size = float(anchor_share), int(pool_size), int(batch_size)
        self.every, self.max_grad_norm = int(every), max_grad_norm
        self.worker = DistillationWorker() if asynchronous else None
        self.archive = RoundArchive(archive) if isinstance(archive, str) else archive
        self.seed = int(seed)
        self.rng = np.random.default_rng(seed)
        self.knowledge = knowledge
        self.rounds = 0
        self.iteration = 0
        self.remembered = 0  # steps ever put into the memory
        self.record: dict[str, Any] = {}  # what the archive says of the latest round
        self.pool: Pool | None = None
        self._given = knowledge is not None  # and not injected yet
        self._updated = False  # the policy has learned since the last rollout began
        self._recorder: EpisodeRecorder | None = None
        self._injection: GradientInjection | None = None
        self._loaded: Mapping[str, Any] | None = None
        self._clock = 0  # environment steps when a rollout last began
        self._learning: Any = None  # which call of `learn` the hook belongs to

    # -- the callback's events ---------------------------------------------------------------------

    @property
    def strength(self) -> float:
        """Factor of everything that is injected."""
        return 1.0 if self.guard is None else self.guard.strength

    def _init_callback(self) -> None:
        if not isinstance(self.model, OnPolicyAlgorithm):
            raise ValueError(
                f"self-distillation is for on-policy algorithms (PPO, A2C, MaskablePPO, RecursivePPO, ...), not {type(self.model).__name__}"
            )
        check_policy(self.model.policy)

    def _on_training_start(self) -> None:
        model = self._model()
        self._learning = model.start_time
        if self._recorder is None or self._recorder.model is not model or self._recorder.env is not model.get_env():
            self._recorder = EpisodeRecorder(model)
        if self._injection is not None:
            self._injection.remove()
        self._injection = GradientInjection(model, self._loss, self.max_grad_norm, self.every)
        if self._loaded is not None:
            self._resume(self._loaded)
            self._loaded = None
        if model.num_timesteps < self._clock:  # `learn` counts from 0 again
            back = int(model.num_timesteps) - self._clock
            self.trigger.shift(back)
            if self.guard is not None:
                self.guard.shift(back)
        self._clock = int(model.num_timesteps)
        self._injection.install()
        if self.archive is not None and self.rounds == 0:
            self.archive.write(0, model.policy, None, {"timesteps": int(model.num_timesteps), "iteration": self.iteration})

    def _on_rollout_start(self) -> None:
        model = self._model()
        self._clock = int(model.num_timesteps)
        if self._updated:
            self._updated = False
            self.distiller.observe(model.policy, self.iteration)
        if self.guard is not None and model.num_timesteps >= self.guard.next:
            self.guard.measure(model)
            self._judge()
        self._maybe_distil()
        self._log()
        assert self._recorder is not None
        self._recorder.begin()

    def _on_step(self) -> bool:
        assert self._recorder is not None
        self._recorder.step(self.locals["rewards"], self.locals["dones"], self.locals["infos"])
        for injector in self.injectors:
            injector.step(self._model(), self.locals)
        return True

    def _on_rollout_end(self) -> None:
        assert self._recorder is not None
        episodes = self._recorder.end(self.iteration, self.buffer.max_steps)
        self.buffer.extend(episodes)
        self.remembered += sum(map(len, episodes))
        self.iteration += 1
        self._updated = True

    def _on_training_end(self) -> None:
        self._clock = int(self.num_timesteps)
        self._archive()
        self.close()

    def close(self) -> None:
        """Take the hook off the optimiser and end the other process; training may begin again afterwards."""
        if self._injection is not None:
            self._injection.remove()
        if self.worker is not None:
            self.worker.close()

    def _model(self) -> OnPolicyAlgorithm:
        assert isinstance(self.model, OnPolicyAlgorithm)
        return self.model

    # -- rounds ------------------------------------------------------------------------------------

    def _maybe_distil(self) -> None:
        """Distil if it is time, and inject what is ready."""
        if not self.buffer.episodes():
            return
        if self._given:
            self._given = False
            assert self.knowledge is not None
            self._inject(self.knowledge, 0.0)
        scores = [] if self.guard is None else self.guard.scores
        now = Moment(self.num_timesteps, self.remembered, self.buffer.max_steps, scores)
        view = Recent(self.buffer, None if self.guard is None else self.guard.window)
        if self.worker is not None:
            result = self.worker.result()
            if result is not None:
                self._inject(result, 0.0)
            elif not self.worker.busy and self.trigger.due(now):
                self.worker.submit(self.distiller, self._model().policy, view.episodes(), self.knowledge, self._round_seed())
                self.trigger.fired(now)
        elif self.trigger.due(now):
            self.trigger.fired(now)
            began = time.perf_counter()
            try:
                found = self.distiller.distil(self._model().policy, view, self.knowledge, np.random.default_rng(self._round_seed()))
            except NotEnoughError as reason:
                if self.verbose:
                    print(f"no distillation at {self.num_timesteps:,} steps: {reason}")  # noqa: T201 - what `verbose` asks for
                return
            self._inject(found, time.perf_counter() - began)

    def _round_seed(self) -> int:
        return int(self.rng.integers(2**63))

    def _inject(self, knowledge: Knowledge, seconds: float) -> None:
        """A round: the knowledge takes effect."""
        model = self._model()
        self._archive()
        self.rounds += 1
        knowledge.provenance = replace(
            knowledge.provenance, iteration=self.iteration, timesteps=int(self.num_timesteps), seed=self.seed, round=self.rounds
        )
        self.knowledge = knowledge
        score = None if self.guard is None else self.guard.begin(model)
        self.pool = Pool(self._drawn(), knowledge, model.device)
        injection = Injection(model, knowledge, self.pool, self.rng, self.strength)
        for injector in self.injectors:
            injector.begin(injection)
        self.record = {
            "timesteps": int(self.num_timesteps),
            "iteration": self.iteration,
            "strength": self.strength,
            "held_out": score,
            "rolled_back": False,
            "seconds": round(seconds, 3),
            "figures": dict(knowledge.figures),
        }
        self._record_knowledge(knowledge, seconds)
        if self.verbose:
            print(f"round {self.rounds} at {self.num_timesteps:,} steps: {knowledge}")  # noqa: T201 - what `verbose` asks for
        if self.guard is not None and any(injector.immediate for injector in self.injectors):
            self.guard.measure(model)
            self._judge()

    def _drawn(self) -> States:
        """The states that a round injects."""
        window = None if self.guard is None else self.guard.window
        found = self.buffer.states(window)
        weights = np.asarray(self.weighting(found), np.float32)
        own, experts = np.where(found.expert, 0, weights), np.where(found.expert, weights, 0)
        n_experts = round(self.anchor_share * self.pool_size) if experts.any() else 0
        if not own.any():
            n_experts = self.pool_size
        parts = []
        if n_experts < self.pool_size:
            parts.append(draw(self.rng, min(self.pool_size - n_experts, max(len(found), self.batch_size)), len(found), own))
        if n_experts:
            parts.append(draw(self.rng, n_experts, len(found), experts))
        return found.at(np.concatenate(parts))

    def _judge(self) -> None:
        assert self.guard is not None
        began = int(self.record.get("iteration", 0))
        if self.guard.judge(self._model()):
            self.distiller.rolled_back(began)
            for injector in self.injectors:
                injector.end(self._model())
            self.pool = None
            self.record["rolled_back"] = True
            if self.verbose:
                print(f"round {self.rounds} taken back: score {self.guard.scores[-1][1]:.3f}")  # noqa: T201 - what `verbose` asks for

    def _loss(self) -> Any:
        """The injectors' losses in one step of the optimiser."""
        model = self._model()
        # An exception leaves the hook behind: SB3 tells callbacks of no end then. It stays silent in any later `learn`.
        if self.pool is None or model.start_time != self._learning:
            return None
        index = self.rng.integers(len(self.pool), size=min(self.batch_size, len(self.pool)))
        batch = self.pool.batch(model.policy, index)
        terms = [term for injector in self.injectors if (term := injector.loss(model, batch)) is not None]
        return sum(terms[1:], terms[0]) if terms else None

    def _archive(self) -> None:
        """Keep the round that ends now."""
        if self.archive is not None and self.record:
            self.archive.write(self.rounds, self._model().policy, self.knowledge, self.record)

    # -- figures -----------------------------------------------------------------------------------

    def _log(self) -> None:
        assert self._injection is not None
        successes, failures = len(self.buffer.successes), len(self.buffer.failures)
        figures = {
            "rounds": self.rounds,
            "strength": self.strength,
            "buffer_steps": self.buffer.n_steps,
            "buffer_episodes": successes + failures,
            "buffer_success": successes / max(successes + failures, 1),
            **self._injection.tally.take(),
        }
        for injector in self.injectors:
            figures |= injector.figures()
        if self.guard is not None and self.guard.scores:
            figures |= {"held_out": self.guard.scores[-1][1], "rollbacks": self.guard.rollbacks}
        for name, value in figures.items():
            self.logger.record(PREFIX + name, value)

    def _record_knowledge(self, knowledge: Knowledge, seconds: float) -> None:
        self.logger.record(PREFIX + "knowledge_parameters", knowledge.parameters())
        self.logger.record(PREFIX + "seconds", seconds)
        for name, value in knowledge.figures.items():
            self.logger.record(f"{PREFIX}student_{name}", value)

    # -- state -------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Everything that going on exactly needs, as plain values and arrays; between rollouts only, as `training_state`.

        Raises:
            RuntimeError: in the middle of a rollout.
        """
        if self._loaded is not None:
            return dict(self._loaded)
        if self._recorder is not None and self._recorder.recording:
            raise RuntimeError("the state exists between rollouts only: take it in on_rollout_start, or after learn()")
        return {
            "kinds": self._kinds(),
            "rng": self.rng.bit_generator.state,
            "counters": [self.rounds, self.iteration, self.remembered, int(self._updated), int(self._given)],
            "record": self.record,
            "clock": self._clock,
            "buffer": self.buffer.state(),
            "distiller": self.distiller.state(),
            "knowledge": None if self.knowledge is None else np.frombuffer(self.knowledge.to_bytes(), np.uint8),
            "pool": None if self.pool is None else {name: getattr(self.pool.states, name) for name in _STATES},
            "calls": 0 if self._injection is None else self._injection.calls,
            "injectors": [injector.state() for injector in self.injectors],
            "trigger": self.trigger.state(),
            "guard": None if self.guard is None else self.guard.state(),
            "recorder": None if self._recorder is None else self._recorder.state(),
        }

    def _kinds(self) -> dict[str, Any]:
        return {
            "distiller": self.distiller.kind,
            "injectors": [injector.kind for injector in self.injectors],
            "trigger": self.trigger.kind,
            "guard": self.guard is not None,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Put back what `state` returned, in a callback made with the same arguments, before `learn`.

        Raises:
            ValueError: it is of other distillers, injectors or triggers, or damaged.
        """
        try:
            if state["kinds"] != self._kinds():
                raise ValueError(f"this state is of {state['kinds']}, the callback has {self._kinds()}")
            self.rng.bit_generator.state = state["rng"]
            self.rounds, self.iteration, self.remembered, updated, given = (int(number) for number in state["counters"])
            self._updated, self._given = bool(updated), bool(given)
            self.record = dict(state["record"])
            self._clock = int(state.get("clock", 0))
            self.buffer.set_state(state["buffer"])
            self.distiller.set_state(state["distiller"])
            content = state["knowledge"]
            self.knowledge = None if content is None else Knowledge.from_bytes(np.asarray(content, np.uint8).tobytes())
            for injector, each in zip(self.injectors, state["injectors"], strict=True):
                injector.set_state(each)
            self.trigger.set_state(state["trigger"])
            if self.guard is not None:
                self.guard.set_state(state["guard"])
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"this is not the state of a SelfDistillationCallback: {error}") from error
        self._recorder, self._loaded = None, state

    def _resume(self, state: Mapping[str, Any]) -> None:
        """Now that the model is there: the part of the state that needs it."""
        model = self._model()
        assert self._recorder is not None
        assert self._injection is not None
        if state["recorder"] is not None:
            self._recorder.resume(state["recorder"])
        self._injection.calls = int(state["calls"])
        self.pool = None
        if state["pool"] is not None and self.knowledge is not None:
            self.pool = Pool(States(**state["pool"]), self.knowledge, model.device)
            # The round goes on with the strength it began with; the guard's may have changed since.
            strength = float(self.record.get("strength", self.strength))
            injection = Injection(model, self.knowledge, self.pool, self.rng, strength)
            for injector in self.injectors:
                injector.resume(injection)

    def save(self, path: File) -> None:
        """Write the state: memory, teacher, trigger, guard and all; save the model at the same moment. The file runs no code."""
        write_state(path, self.state())

    def load(self, path: File) -> None:
        """Read what `save` wrote, into a callback made with the same arguments, before `learn`.

        Raises:
            FileNotFoundError: no such file.
            ModelFileError, ValueError: damaged, or of another callback.
        """
        self.set_state(read_state(path))


def default_injector() -> AuxiliaryLoss:
    """Imitation of what went better than expected; nothing pulls towards the average of the policy's past."""
    return AuxiliaryLoss(weight=0.1, teacher=0.0, imitation=1.0)


def default_weighting() -> Weighting:
    """Frames that succeeded alone, the latest most of all."""
    return Weighting(success=None, half_life=10.0)


class Recent:
    """A view of a memory that looks back `limit` policy iterations at most (None: everything)."""

    def __init__(self, buffer: ExperienceBuffer, limit: int | None) -> None:
        self.buffer, self.limit = buffer, limit

    def episodes(self, window: int | None = None) -> list[Episode]:
        """See `ExperienceBuffer.episodes`."""
        return self.buffer.episodes(min((w for w in (window, self.limit) if w is not None), default=None))


_STATES = [field.name for field in fields(States)]
