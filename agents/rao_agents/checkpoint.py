"""Model files that are standard SB3 archives and load without running code.

A file has the members of SB3's own (`data`, `policy.pth`, `policy.optimizer.pth`, ...), but `data` is JSON
throughout (see `safe_json`) where SB3 puts pickles, and tensors are read with `weights_only`. So a file from
somebody else can be damaged or wrong, but it cannot do anything. Writing is atomic: an interrupted save
leaves the old file as it was.
"""

from __future__ import annotations

import io
import json
import os
import platform
import warnings
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar, cast

import gymnasium
import numpy as np
import numpy.typing as npt
import sb3_contrib
import stable_baselines3 as sb3
import torch as th
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.save_util import recursive_getattr, recursive_setattr
from stable_baselines3.common.type_aliases import GymEnv
from stable_baselines3.common.utils import check_for_correct_spaces, get_device

from rao_agents import safe_json, schedules
from rao_agents.training_state import set_training_state, training_state
from rao_envs.core.files import replacing

Algorithm = TypeVar("Algorithm", bound=BaseAlgorithm)
File = str | os.PathLike[str] | BinaryIO

FORMAT = "rao-agents"
FORMAT_VERSION = 1
DATA, STATE, SIGN = "data", "training_state", "rao_agents.json"
TENSORS = ".pth"
OTHER_TENSORS = "pytorch_variables"
PICKLED = ":serialized:"
"""The mark SB3 leaves in `data` where a value is a pickle."""

UNSAVED = {
    # Of the environment at the moment of saving, not of the model: `training_state` keeps what resuming
    # needs.
    "_last_obs", "_last_original_obs", "_last_episode_starts", "_last_lstm_states", "start_time",
    # Made anew by `_setup_model`.
    "batch_norm_stats", "batch_norm_stats_target",
}  # fmt: skip

_ALGORITHMS: dict[str, type[BaseAlgorithm]] = {
    "PPO": sb3.PPO,
    "A2C": sb3.A2C,
    "DQN": sb3.DQN,
    "MaskablePPO": sb3_contrib.MaskablePPO,
    "RecurrentPPO": sb3_contrib.RecurrentPPO,
}


class ModelFileError(ValueError):
    """A model file that cannot be read: damaged, foreign, or of another version."""


class UnsafeModelError(ModelFileError):
    """A model file that holds pickles, which can run any code when they are loaded."""


def register_algorithm(cls: type[BaseAlgorithm]) -> type[BaseAlgorithm]:
    """Let `load_safely` make algorithms of class `cls`, by its name; usable as a decorator.

    Raises:
        ValueError: The name is taken by another class.
    """
    if _ALGORITHMS.setdefault(cls.__name__, cls) is not cls:
        raise ValueError(f"the name {cls.__name__!r} is already taken by {_ALGORITHMS[cls.__name__]}")
    return cls


# -- saving ----------------------------------------------------------------------------------------


def save_safely(
    model: BaseAlgorithm,
    path: File,
    *,
    with_training_state: bool = False,
    exclude: Iterable[str] = (),
    include: Iterable[str] = (),
) -> None:
    """Write `model` so that `load_safely` gives it back.

    Args:
        model: any algorithm of SB3, sb3-contrib or this package.
        path: file, ".zip" is added where it has no suffix; folders are made. Or a writable binary file.
        with_training_state: also write what is needed to go on exactly as if training had never stopped: see
            `training_state`.
        exclude: names of attributes to leave out.
        include: names of attributes to put in although they usually are left out.

    Raises:
        TypeError: Attributes that cannot be written; the message names each, with the reason.
    """
    members = {DATA: _dump(_encode_attributes(model, set(exclude), set(include)))}
    state_dicts, tensor_names = model._get_torch_save_params()
    for name in state_dicts:
        members[name + TENSORS] = _tensor_bytes(recursive_getattr(model, name).state_dict())
    members[OTHER_TENSORS + TENSORS] = _tensor_bytes({name: recursive_getattr(model, name) for name in tensor_names})
    if with_training_state:
        members |= _encode_state(training_state(model))
    members |= _signature(type(model).__name__)
    _write_archive(path, members)


def _encode_attributes(model: BaseAlgorithm, exclude: set[str], include: set[str]) -> dict[str, Any]:
    state_dicts, tensor_names = model._get_torch_save_params()
    hidden = {
        "_tap",
        "_states",
        *UNSAVED,
        *model._excluded_save_params(),
        *(n.split(".")[0] for n in state_dicts + tensor_names),
    }
    hidden = (hidden | exclude) - include
    data, problems = {}, []
    for name, value in model.__dict__.items():
        if name in hidden:
            continue
        try:
            data[name] = safe_json.encode(value)
        except TypeError as error:
            table = _as_table(value)
            if table is None:
                problems.append(f"{name}: {error}")
            else:
                warnings.warn(
                    f"{name} is a Python function, which is not written to model files. Its values are, as a "
                    "table; use rao_agents.schedules for an exact schedule.",
                    stacklevel=3,
                )
                data[name] = safe_json.encode(table)
    if problems:
        raise TypeError("this model cannot be saved without pickles (exclude=[...] leaves attributes out):\n  " + "\n  ".join(problems))
    return data


def _as_table(value: Any) -> schedules.TableSchedule | None:
    """`value` as a table, if it is a function from progress to numbers."""
    if not callable(value) or isinstance(value, type):
        return None
    try:
        return schedules.tabulate(value)
    except Exception:  # whatever a stranger's function raises when it is not a schedule
        return None


def _encode_state(state: Mapping[str, Any]) -> dict[str, bytes]:
    arrays: safe_json.Arrays = {}
    members = {STATE: _dump(safe_json.encode(state, arrays))}
    for name, array in arrays.items():
        file = io.BytesIO()
        np.save(file, array, allow_pickle=False)
        members[f"{STATE}/{name}.npy"] = file.getvalue()
    return members


def _dump(value: Any) -> bytes:
    return json.dumps(value, indent=1, allow_nan=False).encode()


def _tensor_bytes(value: Any) -> bytes:
    file = io.BytesIO()
    th.save(value, file)
    return file.getvalue()


def _signature(kind: str) -> dict[str, bytes]:
    versions = {
        "python": platform.python_version(),
        "stable_baselines3": sb3.__version__,
        "sb3_contrib": sb3_contrib.__version__,
        "torch": str(th.__version__),
        "numpy": np.__version__,
        "gymnasium": gymnasium.__version__,
    }
    return {
        SIGN: _dump({"format": FORMAT, "version": FORMAT_VERSION, "class": kind, "versions": versions}),
        "_stable_baselines3_version": sb3.__version__.encode(),
        "system_info.txt": "\n".join(f"- {name}: {version}" for name, version in versions.items()).encode(),
    }


def _write_archive(path: File, members: Mapping[str, bytes], compressed: bool = True) -> None:
    with _replacing(path) as file, zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            # A fixed date: the same model gives the same bytes.
            info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            info.external_attr = 0o644 << 16
            info.compress_type = zipfile.ZIP_DEFLATED if compressed and not name.endswith(TENSORS) else zipfile.ZIP_STORED
            archive.writestr(info, content)


@contextmanager
def _replacing(path: File) -> Iterator[BinaryIO]:
    """A binary file that takes the place of `path` when it is complete, and not before."""
    if not isinstance(path, (str, os.PathLike)):
        yield path
        return
    target = with_suffix(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target) as file:
        yield file


def with_suffix(path: str | os.PathLike[str]) -> Path:
    """`path`, with ".zip" where it has no suffix (as SB3 does)."""
    target = Path(path)
    return target if target.suffix else target.with_name(target.name + ".zip")


# -- loading ---------------------------------------------------------------------------------------


class Archive(NamedTuple):
    """What a model file holds, decoded."""

    kind: str  # name of the class that was saved
    data: dict[str, Any]
    tensors: dict[str, Any]  # state dictionaries by attribute name, and OTHER_TENSORS
    state: dict[str, Any] | None  # the training state, where there is one


def load_safely(
    path: File,
    env: GymEnv | None = None,
    *,
    algorithm: type[Algorithm] | str | None = None,
    device: th.device | str = "auto",
    custom_objects: Mapping[str, Any] | None = None,
    force_reset: bool = True,
    with_training_state: bool = False,
    allow_pickle: bool = False,
    **kwargs: Any,
) -> Algorithm:
    """A model from a file that `save_safely` wrote. No code in the file is run.

    Args:
        path: file, with or without ".zip"; or a readable binary file.
        env: to go on training in; None for predictions only.
        algorithm: class or registered name that the file must be of; None takes what it is. Files of SB3's
            own `save` do not say what they are, so it is needed for them.
        device: where the networks go.
        custom_objects: values for attributes that replace those in the file.
        force_reset: begin new episodes when training goes on.
        with_training_state: put the training state in the file back, the environment's included, so that
            `model.learn(total - model.num_timesteps, reset_num_timesteps=False)` ends as if training had
            never stopped; needs `env`.
        allow_pickle: also load files with pickles, which can run any code: only for files you trust.
        kwargs: attributes to change in the loaded model.

    Raises:
        FileNotFoundError: No such file.
        UnsafeModelError: The file needs pickles and `allow_pickle` is false.
        ModelFileError: Damaged, foreign, of another algorithm or version, or without the training state asked
            for.
    """
    cls = _algorithm(algorithm) if algorithm is not None else None
    with _readable(path) as (file, name):
        try:
            archive = read_archive(file, name, custom_objects)
        except UnsafeModelError:
            if not allow_pickle:
                raise
            if cls is None:
                raise ModelFileError(f"{name} does not say which algorithm it is: pass algorithm=...") from None
            file.seek(0)
            objects = None if custom_objects is None else dict(custom_objects)
            # `BaseAlgorithm.load` on purpose: a class of ours would come back here.
            loaded = BaseAlgorithm.load.__func__(  # type: ignore[attr-defined]
                cls, file, env=env, device=device, custom_objects=objects, force_reset=force_reset, **kwargs
            )
            return cast(Algorithm, loaded)
    saved = _algorithm(archive.kind)
    if cls is not None and not issubclass(saved, cls):
        raise ModelFileError(f"{name} holds a {archive.kind}, not a {cls.__name__}")
    model = _build(saved, archive, env, device, force_reset, name, kwargs)
    if with_training_state:
        if archive.state is None:
            raise ModelFileError(f"{name} holds no training state: save with with_training_state=True to resume exactly")
        if env is None:
            raise ValueError("to resume training, pass the environment: env=...")
        set_training_state(model, archive.state)
    return cast(Algorithm, model)


def _algorithm(algorithm: Any) -> type[BaseAlgorithm]:
    if isinstance(algorithm, str):
        if algorithm not in _ALGORITHMS:
            raise ModelFileError(f"unknown algorithm {algorithm!r}; known: {', '.join(sorted(_ALGORITHMS))} (see register_algorithm)")
        return _ALGORITHMS[algorithm]
    return cast(type[BaseAlgorithm], algorithm)


def _build(
    cls: type[BaseAlgorithm],
    archive: Archive,
    env: GymEnv | None,
    device: th.device | str,
    force_reset: bool,
    name: str,
    kwargs: Mapping[str, Any],
) -> BaseAlgorithm:
    """The steps of `BaseAlgorithm.load`, from decoded data."""
    data = dict(archive.data)
    for key, kind in (
        ("observation_space", gymnasium.Space),
        ("action_space", gymnasium.Space),
        ("policy_class", type),
    ):
        if not isinstance(data.get(key), kind):
            raise ModelFileError(f"{name} is damaged: no valid {key}")
    if not issubclass(data["policy_class"], BasePolicy):
        raise ModelFileError(f"{name} is damaged: {data['policy_class'].__name__} is not a policy")
    if "policy_kwargs" in kwargs and kwargs["policy_kwargs"] != data["policy_kwargs"]:
        raise ValueError(f"policy_kwargs differ from those of the file: {kwargs['policy_kwargs']} and {data['policy_kwargs']}")
    if env is not None:
        env = cls._wrap_env(env, data["verbose"])
        check_for_correct_spaces(env, data["observation_space"], data["action_space"])
        data["n_envs"] = env.num_envs
        if force_reset:
            data["_last_obs"] = None
    constructor: Any = cls
    model: BaseAlgorithm = constructor(policy=data["policy_class"], env=env, device=device, _init_setup_model=False)
    model.__dict__.update(data)
    if hasattr(model, "check_options"):
        try:
            model.check_options()
        except ValueError as error:
            raise ModelFileError(f"{name} is damaged, or of a newer version: {error}") from error
    model.__dict__.update(kwargs)
    model._setup_model()
    others = archive.tensors.get(OTHER_TENSORS) or {}
    try:
        model.set_parameters({key: value for key, value in archive.tensors.items() if key != OTHER_TENSORS}, exact_match=True)
        for key, value in others.items():
            if value is not None:
                recursive_setattr(model, f"{key}.data", value.data.to(model.device))
    except (RuntimeError, ValueError, KeyError, AttributeError) as error:
        raise ModelFileError(f"the weights in {name} do not fit the model it describes: {error}") from error
    if model.use_sde:
        model.policy.reset_noise()  # type: ignore[operator]
    return model


@contextmanager
def _readable(path: File) -> Iterator[tuple[BinaryIO, str]]:
    """`path` opened, and what to call it in messages."""
    if not isinstance(path, (str, os.PathLike)):
        yield path, "the model file"
        return
    target = Path(path)
    if not target.is_file():
        target = with_suffix(path)
    if not target.is_file():
        raise FileNotFoundError(f"no model file at {path}" + ("" if str(target) == str(path) else f" or {target}"))
    with open(target, "rb") as file:
        yield file, str(target)


def read_archive(path: File, name: str = "the model file", custom_objects: Mapping[str, Any] | None = None) -> Archive:
    """Read and decode a model file, without making a model of it.

    Raises:
        FileNotFoundError, UnsafeModelError, ModelFileError: See `load_safely`.
    """
    if isinstance(path, (str, os.PathLike)):
        with _readable(path) as (file, found):
            return read_archive(file, found, custom_objects)
    try:
        with zipfile.ZipFile(path) as archive:
            members = {entry: archive.read(entry) for entry in archive.namelist()}
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, NotImplementedError, RuntimeError) as error:
        raise ModelFileError(f"{name} is not a model file, or it is truncated or damaged ({error})") from error
    if missing := [member for member in (DATA, "policy" + TENSORS) if member not in members]:
        raise ModelFileError(f"{name} is not a model file, or it is truncated or damaged (it has no {' and no '.join(missing)})")
    raw = _parse(members[DATA], name)
    pickled = [key for key, value in raw.items() if isinstance(value, dict) and PICKLED in value and key not in (custom_objects or {})]
    if pickled:
        raise UnsafeModelError(
            f"{name} holds pickles ({', '.join(pickled)}), which can run any code when they are loaded. "
            "If you trust where it comes from, load it with allow_pickle=True, then save it again."
        )
    if SIGN not in members:
        raise ModelFileError(f"{name} was not written by rao_agents: it has no {SIGN}")
    sign = _parse(members[SIGN], name)
    if sign.get("format") != FORMAT or not isinstance(sign.get("class"), str):
        raise ModelFileError(f"{name} was not written by rao_agents")
    if sign.get("version") != FORMAT_VERSION:
        raise ModelFileError(f"{name} is of format version {sign.get('version')}, this is version {FORMAT_VERSION}")
    try:
        data = {key: safe_json.decode(value) for key, value in raw.items() if key not in (custom_objects or {})}
        state = _decode_state(members, name)
    except (ValueError, EOFError, OSError) as error:
        raise ModelFileError(f"{name}: {error}") from error
    tensors = {}
    for entry, content in members.items():
        if entry.endswith(TENSORS):
            try:
                tensors[entry.removesuffix(TENSORS)] = th.load(io.BytesIO(content), map_location=get_device("cpu"), weights_only=True)
            except Exception as error:  # torch raises whatever its parsers do
                raise ModelFileError(f"the tensors {entry} in {name} are damaged or unsafe: {error}") from error
    return Archive(sign["class"], data | dict(custom_objects or {}), tensors, state)


def saved_versions(path: File) -> dict[str, str]:
    """Versions of the libraries that wrote a model file, by name; empty for files of SB3's own `save`.

    Raises:
        FileNotFoundError, ModelFileError: See `load_safely`.
    """
    with _readable(path) as (file, name):
        try:
            with zipfile.ZipFile(file) as archive:
                if SIGN not in archive.namelist():
                    return {}
                versions = _parse(archive.read(SIGN), name).get("versions", {})
        except zipfile.BadZipFile as error:
            raise ModelFileError(f"{name} is not a model file, or it is truncated or damaged ({error})") from error
        finally:
            file.seek(0)
    return {str(key): str(value) for key, value in versions.items()}


def _parse(content: bytes, name: str) -> dict[str, Any]:
    try:
        value = json.loads(content)
    except ValueError as error:
        raise ModelFileError(f"{name} is damaged: its description is not JSON ({error})") from error
    if not isinstance(value, dict):
        raise ModelFileError(f"{name} is damaged: its description is not a JSON object")
    return value


def _decode_state(members: Mapping[str, bytes], name: str) -> dict[str, Any] | None:
    if STATE not in members:
        return None
    prefix = STATE + "/"
    arrays: dict[str, npt.NDArray[Any]] = {
        entry.removeprefix(prefix).removesuffix(".npy"): np.load(io.BytesIO(content), allow_pickle=False)
        for entry, content in members.items()
        if entry.startswith(prefix)
    }
    decoded: dict[str, Any] = safe_json.decode(_parse(members[STATE], name), arrays)
    return decoded


# -- policies alone --------------------------------------------------------------------------------


def save_policy(policy: BasePolicy, path: File) -> None:
    """Write a policy alone, without what training needs."""
    parameters = {key: value for key, value in policy._get_constructor_parameters().items() if key != "lr_schedule"}
    data = {"policy_class": type(policy), "parameters": parameters}
    members = {DATA: _dump(safe_json.encode(data)), "policy" + TENSORS: _tensor_bytes(policy.state_dict())}
    _write_archive(path, members | _signature(type(policy).__name__))


def load_policy(path: File, device: th.device | str = "auto") -> BasePolicy:
    """A policy that `save_policy` wrote; errors as in `load_safely`."""
    archive = read_archive(path)
    cls, parameters = archive.data.get("policy_class"), archive.data.get("parameters")
    if not isinstance(parameters, dict) or not isinstance(cls, type) or not issubclass(cls, BasePolicy):
        raise ModelFileError("this file does not hold a policy alone: load it with load_safely")
    constructor: Any = cls
    policy: BasePolicy = constructor(**parameters, lr_schedule=schedules.constant(0.0))
    try:
        policy.load_state_dict(archive.tensors["policy"])
    except RuntimeError as error:
        raise ModelFileError(f"the weights do not fit the policy: {error}") from error
    return policy.to(get_device(device))
