"""A distillation as configuration files write it: plain values in, a callback out."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from stable_baselines3.common.vec_env import VecEnv

from rao_agents.distillation.buffer import ExperienceBuffer
from rao_agents.distillation.callback import SelfDistillationCallback
from rao_agents.distillation.distillers.base import Distiller
from rao_agents.distillation.guard import Guard, HeldOut
from rao_agents.distillation.injectors import Injector
from rao_agents.distillation.rounds import RoundArchive
from rao_agents.distillation.triggers import AnyOf, Trigger
from rao_agents.distillation.weighting import weighting

_DISTILLERS = "rao_agents.distillation.distillers"
DISTILLERS = {
    "student": f"{_DISTILLERS}.student:StudentDistiller",
    "contrastive": f"{_DISTILLERS}.contrastive:ContrastiveDistiller",
    "improvement": f"{_DISTILLERS}.improvement:ImprovementDistiller",
    "skills": f"{_DISTILLERS}.skills:SkillDistiller",
}
_HERE = "rao_agents.distillation"
INJECTORS = {
    "auxiliary": f"{_HERE}.injectors:AuxiliaryLoss",
    "consolidation": f"{_HERE}.injectors:ElasticWeightConsolidation",
    "interpolation": f"{_HERE}.injectors:PolicyInterpolation",
    "initialise": f"{_HERE}.injectors:InitialiseFrom",
    "exploration": f"{_HERE}.exploration:ExplorationBonus",
    "explorer": f"{_HERE}.explorer:ExplorerEntropy",
}
TRIGGERS = {
    "interval": f"{_HERE}.triggers:Interval",
    "buffer_full": f"{_HERE}.triggers:BufferFull",
    "plateau": f"{_HERE}.triggers:Plateau",
}
PLAIN = ("anchor_share", "pool_size", "batch_size", "every", "max_grad_norm", "asynchronous")
"""Arguments of the callback that are plain values."""
KEYS = ("distiller", "injectors", "trigger", "buffer", "weighting", "guard", "anchors", *PLAIN)


def make_callback(
    value: Mapping[str, Any] | bool,
    *,
    eval_env: VecEnv | None = None,
    archive: RoundArchive | str | None = None,
    seed: int = 0,
    verbose: int = 0,
) -> SelfDistillationCallback:
    """The callback that settings describe.

    What is not there has its default. A distiller, an injector or a trigger is a word, or a mapping with its `kind` and arguments:

        distiller: {kind: student, student: light}
        injectors: [{kind: auxiliary, weight: lin_0.5}, consolidation]
        trigger: {kind: interval, steps: 5000}        # or a list of triggers: any of them
        buffer: {max_steps: 50000, success_share: 0.5}
        weighting: {success: null, half_life: 10}
        guard: {every: 10000, episodes: 100}           # or true; needs `eval_env`
        anchors: {dataset: NAME}                       # experts' episodes, a Minari dataset
        anchor_share: 0.1

    Args:
        value: the settings; True for all defaults.
        eval_env: held-out environment; used if there is a guard.
        archive: as the callback's.
        seed: of the callback and of its buffer.
        verbose: as the callback's.

    Raises:
        ValueError: unknown words or arguments; the message has the known ones.
    """
    settings = {} if value is True else value
    if not isinstance(settings, Mapping):
        raise ValueError(f"a distillation is true or a mapping with {', '.join(KEYS)}, got {value!r}")
    if unknown := set(settings) - set(KEYS):
        raise ValueError(f"a distillation has no {', '.join(sorted(map(str, unknown)))}; it has {', '.join(KEYS)}")
    guard = _guard(settings.get("guard"), eval_env)
    anchors = settings.get("anchors")
    buffer = _called(ExperienceBuffer, "buffer", {"seed": seed, **_mapping("buffer", settings.get("buffer"))})
    given = settings.get("injectors")
    if given is not None and (isinstance(given, (str, Mapping)) or not isinstance(given, Sequence)):
        raise ValueError(f"injectors is a list, got {given!r}")
    options = {name: settings[name] for name in PLAIN if name in settings}
    if anchors is not None:
        from rao_agents.distillation.minari_data import episodes_from_minari

        options["anchors"] = episodes_from_minari(str(_mapping("anchors", anchors).get("dataset", "")))
    return SelfDistillationCallback(
        distiller=None if settings.get("distiller") is None else make_distiller(settings["distiller"]),
        injectors=None if given is None else [make_injector(each) for each in given],
        trigger=None if settings.get("trigger") is None else make_trigger(settings["trigger"]),
        buffer=buffer,
        guard=guard,
        weighting=None if settings.get("weighting") is None else weighting(_mapping("weighting", settings["weighting"])),
        archive=archive,
        seed=seed,
        verbose=verbose,
        **options,
    )


def make_distiller(value: Any) -> Distiller:
    """A distiller from a word or a mapping with `kind`; see `make_callback`."""
    made = _made("distiller", DISTILLERS, value)
    assert isinstance(made, Distiller)
    return made


def make_injector(value: Any) -> Injector:
    """An injector, likewise."""
    made = _made("injector", INJECTORS, value)
    assert isinstance(made, Injector)
    return made


def make_trigger(value: Any) -> Trigger:
    """A trigger, likewise; a list of them means any."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return AnyOf(*(make_trigger(each) for each in value))
    made = _made("trigger", TRIGGERS, value)
    assert isinstance(made, Trigger)
    return made


def wants_guard(value: Any) -> bool:
    """Whether settings ask for a guard, which needs a held-out environment."""
    return isinstance(value, Mapping) and value.get("guard") not in (None, False)


def _guard(value: Any, eval_env: VecEnv | None) -> Guard | None:
    if value is None or value is False:
        return None
    arguments = {} if value is True else _mapping("guard", value)
    held_out: dict[str, Any] = {name: arguments.pop(name) for name in ("episodes", "seed", "deterministic") if name in arguments}
    if eval_env is None:
        raise ValueError("a guard needs a held-out environment")
    scored = _called(HeldOut, "guard", {"env": eval_env, **held_out})
    guard: Guard = _called(Guard, "guard", {"held_out": scored, **arguments})
    return guard


def _made(what: str, known: Mapping[str, str], value: Any) -> Any:
    arguments = {"kind": value} if isinstance(value, str) else _mapping(what, value)
    kind = arguments.pop("kind", None)
    if not isinstance(kind, str) or kind not in known:
        raise ValueError(f"the {what}'s kind must be one of {', '.join(known)}, got {kind!r}")
    module, _, name = known[kind].partition(":")
    return _called(getattr(importlib.import_module(module), name), f"{kind} {what}", arguments)


def _called(cls: Any, what: str, arguments: Mapping[str, Any]) -> Any:
    known = [name for name in inspect.signature(cls).parameters if name not in ("held_out", "env")]
    if unknown := set(arguments) - {*known, "held_out", "env"}:
        raise ValueError(f"a {what} has no {', '.join(sorted(map(str, unknown)))}; it has {', '.join(known) or 'no arguments'}")
    try:
        return cls(**arguments)
    except TypeError as error:
        raise ValueError(f"{what}: {error}") from error


def _mapping(what: str, value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ValueError(f"{what} must be a mapping, got {value!r}")
    return dict(value)
