"""What can be submitted: trained models, Python functions, programs, built-in agents; each with the files that stand for its policy."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym

from rao_baselines.agents import BUILTINS, Loaded, find_model, fit, load_agent, load_model
from rao_baselines.errors import UserError
from rao_leaderboard.protocol import OPTIONS

Interface = Literal["model", "callable", "process", "language-model", "builtin"]
Maker = Callable[[str, dict[str, Any]], AbstractContextManager[Loaded]]
"""Opens the agent for an environment; the second argument holds `deterministic`."""

MOST_POINTS = 500
"""Of a learning curve."""


@dataclass
class Source:
    """One run to be submitted.

    Attributes:
        name: of the run.
        interface: how it is run.
        files: contents of its policy's files by name: what its digest, and so its episodes, come from.
        open: makes it act in an environment.
        settings: what else decides how it acts, as text: episodes that were kept under others are not its own.
        onnx: the name of the file among them that acts; None for none.
        family: entry point of the environments it was trained for; None where it says nothing.
        full_context: whether it is known to keep more from step to step than one frame's window.
        training_seed, training_steps, trained_on, wall_clock, curve: see `rao_leaderboard.schema.Run`.
    """

    name: str
    interface: Interface
    files: dict[str, bytes]
    open: Maker
    settings: str = ""
    onnx: str | None = None
    family: str | None = None
    full_context: bool = False
    training_seed: int | None = None
    training_steps: int = 0
    trained_on: tuple[str, ...] = ()
    wall_clock: float | None = None
    curve: tuple[tuple[int, float], ...] = field(default=(), repr=False)


def make_source(
    text: str, name: str, artefact: Sequence[Path], env_kwargs: Mapping[str, bool], patience: float, number: int | None, onnx: bool
) -> Source:
    """The source that a user names.

    Args:
        text: "random", "solver"; "module:function"; "process:COMMAND"; or what `rao evaluate` takes for a model.
        name: of the run.
        artefact: files of the policy, where they cannot be found out.
        env_kwargs: of OPTIONS, as the user gave them.
        patience: seconds that a program has for an answer.
        number: which repetition it is, for agents that were not trained: it becomes part of the policy, so that each has other episodes.
        onnx: submit the policy as ONNX, and act from that.

    Raises:
        UserError: there is no such agent, or something is missing.
    """
    given = _read(artefact)
    if number is not None:
        _put(given, "run.txt", f"run {number}\n".encode())
    kwargs = dict(env_kwargs)
    source = _make_source(text, name, given, kwargs, patience, onnx, bool(artefact))
    source.settings = json.dumps(kwargs, sort_keys=True)
    return source


def _make_source(
    text: str, name: str, given: dict[str, bytes], kwargs: dict[str, Any], patience: float, onnx: bool, has_artefact: bool
) -> Source:
    if text in BUILTINS:
        _put(given, "policy.txt", f"rao evaluate {text}: {BUILTINS[text].summary}\n".encode())
        return Source(name, "builtin", given, lambda env_id, _: _still(load_agent(text, env_id, {"spawn": True} | kwargs)))
    if text.startswith("process:"):
        if not has_artefact:
            raise UserError("a program's policy cannot be found out: name its files (weights, source, prompt) with --artefact")
        command = text.removeprefix("process:")
        # Part of the policy: other arguments are another policy, and have other episodes.
        _put(given, "command.txt", f"{command}\n".encode())
        return Source(name, "process", given, _open_process(command, kwargs, patience))
    module, separator, function = text.partition(":")
    if separator and module.replace(".", "_").replace("_", "a").isidentifier() and not Path(text).exists():
        agent = _import(module, function)
        if not has_artefact:
            given |= _source_of(agent, text)
        _put(given, "function.txt", f"{text}\n".encode())
        return Source(name, "callable", given, lambda env_id, _: _from_here(Loaded(agent, text, {"spawn": True} | kwargs, 1)))
    return _model_source(text, name, given, kwargs, onnx)


def _model_source(text: str, name: str, given: dict[str, bytes], kwargs: dict[str, Any], onnx: bool) -> Source:
    path = find_model(text)
    model = load_model(path)
    facts = _facts(path)
    if onnx:
        content = _export(model, path)
        _put(given, "policy.onnx", content)
        source = Source(name, "model", given, _open_onnx(content, model, path, kwargs), onnx="policy.onnx")
    else:
        _put(given, "policy.zip", path.read_bytes())
        source = Source(name, "model", given, lambda env_id, _: _still(fit(model, path, env_id, dict(kwargs))))
    source.full_context = hasattr(getattr(model, "policy", model), "lstm_hidden_state_shape")
    source.training_steps, source.training_seed = int(getattr(model, "num_timesteps", 0)), getattr(model, "seed", None)
    if facts:
        settings = facts.get("settings", {})
        source.family = _family(facts["env_id"])
        source.training_seed, source.training_steps = facts.get("seed"), int(facts.get("steps", 0))
        source.wall_clock = facts.get("seconds")
        source.trained_on = _trained_on(facts["env_id"], settings)
        source.full_context = source.full_context or settings.get("frame_stack", 1) > 1
        source.curve = _curve(facts.get("curve", ()))
    return source


def _trained_on(env_id: str, settings: Mapping[str, Any]) -> tuple[str, ...]:
    """The ids that a run of `rao train` has learned on: of a curriculum or a mixture, all of them."""
    arguments = json.dumps(settings.get("env_kwargs") or {}, sort_keys=True, separators=(",", ":"))
    own = env_id + ("" if arguments == "{}" else f" {arguments}"[:150])
    tasks = [*(settings.get("curriculum") or {}).get("stages", ()), *(settings.get("mixture") or {})]
    return tuple(dict.fromkeys([own, *(str(task)[:200] for task in tasks)]))


def _curve(points: Sequence[Mapping[str, Any]]) -> tuple[tuple[int, float], ...]:
    """Success of the sampling policy while it learned, MOST_POINTS of its points at most."""
    known = [(int(point["steps"]), point["sampled"]["success"]) for point in points]
    found = [(steps, float(success)) for steps, success in known if success is not None]
    every = -(-len(found) // MOST_POINTS) if found else 1
    return tuple(found[::every])


def _facts(path: Path) -> dict[str, Any]:
    """What `rao train` says of the model; empty where it says nothing."""
    for candidate in (path.with_name("result.json"), path.with_suffix(".json")):
        if path.name == "model.zip" or candidate.stem == path.stem:
            with contextlib.suppress(OSError, ValueError):
                found = json.loads(candidate.read_text(encoding="utf-8"))
                if isinstance(found, dict) and isinstance(found.get("env_id"), str):
                    return found
    return {}


def _export(model: Any, path: Path) -> bytes:
    import tempfile

    try:
        from rao_agents.onnx_export import export_onnx
    except ImportError as error:
        raise UserError(f'{error}; install what ONNX needs with: pip install "rao-envs[onnx]"') from error
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "policy.onnx"
        try:
            export_onnx(model, target)
        except ImportError as error:
            raise UserError(f'{error}; install what ONNX needs with: pip install "rao-envs[onnx]"') from error
        except (TypeError, ValueError, NotImplementedError) as error:
            raise UserError(f"the model in {path} cannot be written as ONNX: {error}; submit it without --onnx") from error
        return target.read_bytes()


def _open_onnx(content: bytes, model: Any, path: Path, kwargs: dict[str, Any]) -> Maker:
    """The exported policy acts itself: what is re-run later is what was submitted."""

    def maker(env_id: str, _: dict[str, Any]) -> AbstractContextManager[Loaded]:
        from rao_leaderboard.onnx_agent import OnnxAgent

        fitted = fit(model, path, env_id, dict(kwargs))
        return _still(Loaded(OnnxAgent(content), fitted.name, fitted.env_kwargs, 1))

    return maker


def _open_process(command: str, kwargs: dict[str, Any], patience: float) -> Maker:
    @contextlib.contextmanager
    def maker(env_id: str, options: dict[str, Any]) -> Iterator[Loaded]:
        from rao_baselines.submitting.line_protocol import ProcessAgent, describe_space

        chosen = {"spawn": True} | kwargs
        env: Any = gym.make(env_id, **chosen)
        hello = {
            "env_id": env_id,
            "env_kwargs": chosen,
            "deterministic": bool(options["deterministic"]),
            "action_names": list(env.unwrapped.action_names),
            "observation": describe_space(env.observation_space),
        }
        env.close()
        with ProcessAgent(command, hello, patience) as agent:
            yield Loaded(agent, command, chosen, 1)

    return maker


def _still(loaded: Loaded) -> AbstractContextManager[Loaded]:
    """An agent that needs no closing."""
    return contextlib.nullcontext(loaded)


@contextlib.contextmanager
def _from_here(loaded: Loaded) -> Iterator[Loaded]:
    """An agent that may import what lies beside it while it acts."""
    with _current_folder():
        yield loaded


@contextlib.contextmanager
def _current_folder() -> Iterator[None]:
    """Modules are also looked for in the current folder."""
    here = str(Path.cwd())
    added = here not in sys.path
    if added:
        sys.path.insert(0, here)
    try:
        yield
    finally:
        if added:
            with contextlib.suppress(ValueError):  # the agent's own code may have taken it away
                sys.path.remove(here)


def _import(module: str, function: str) -> Any:
    """`module:function`, also from the current folder."""
    try:
        with _current_folder():
            found: Any = importlib.import_module(module)
            for part in function.split("."):
                found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise UserError(f"{module}:{function} cannot be imported: {error}") from error
    if not callable(found):
        raise UserError(f"{module}:{function} is no function (observation, mask, state) -> action")
    return found


def _source_of(agent: Any, text: str) -> dict[str, bytes]:
    try:
        path = inspect.getsourcefile(agent if inspect.isroutine(agent) else type(agent))
    except TypeError:
        path = None
    if path is None:
        raise UserError(f"the source of {text} cannot be found: name the policy's files with --artefact")
    return {Path(path).name: Path(path).read_bytes()}


def _read(paths: Sequence[Path]) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    for path in paths:
        if path.name in files:
            raise UserError(f"there are two artefacts called {path.name}")
        try:
            files[path.name] = path.read_bytes()
        except OSError as error:
            raise UserError(f"the artefact {path} cannot be read: {error.strerror or error}") from error
        if not files[path.name]:
            raise UserError(f"the artefact {path} is empty")
    return files


def _put(files: dict[str, bytes], name: str, content: bytes) -> None:
    """Add a file of ours to those the user named.

    Raises:
        UserError: one of them is called like it.
    """
    if name in files:
        raise UserError(f"an artefact cannot be called {name}: what rao submit writes there is part of the policy, too")
    files[name] = content


def _family(env_id: str) -> str | None:
    with contextlib.suppress(gym.error.Error):
        return str(gym.spec(env_id).entry_point)
    return None


def check_options(assignments: Mapping[str, Any]) -> dict[str, bool]:
    """The environment's arguments that a submission may choose.

    Raises:
        UserError: others, or values that are not true or false.
    """
    for key, value in assignments.items():
        if key not in OPTIONS or not isinstance(value, bool):
            raise UserError(
                f"the protocol plays the registered ids as they are: only {', '.join(sorted(OPTIONS))}=true|false, not {key}={value}"
            )
    return dict(assignments)
