"""Values that describe a model, written as JSON and read back without running any code.

Anything JSON does not know is a dictionary with the key "$" that names its kind. Classes are written by a
registered name and can only be read back when that name is registered: a file cannot make us import or call
anything else.
"""

from __future__ import annotations

import base64
import io
import math
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt
import torch as th
from gymnasium import spaces
from sb3_contrib.common.maskable import buffers as maskable_buffers
from sb3_contrib.common.maskable import policies as maskable_policies
from sb3_contrib.common.recurrent import buffers as recurrent_buffers
from sb3_contrib.common.recurrent import policies as recurrent_policies
from stable_baselines3.common import buffers, policies, torch_layers, utils
from stable_baselines3.common.sb2_compat import rmsprop_tf_like
from stable_baselines3.dqn import policies as dqn_policies
from torch import nn

from rao_agents import schedules

TAG = "$"
Arrays = dict[str, npt.NDArray[Any]]
INLINE_BYTES = 512
"""Arrays up to this size stay inside the JSON text where a store for larger ones is offered."""

MOST_NUMBERS = 1 << 26
"""A Box of more numbers is not read: its bounds alone would fill the memory, whatever the size of the file."""

_CLASSES: dict[str, type] = {}
_NAMES: dict[type, str] = {}


def register_class(cls: type, name: str | None = None) -> type:
    """Let saved models refer to a class of your own by name; usable as a decorator.

    Register it under the same name before loading.

    Args:
        cls: a features extractor or an activation, say.
        name: module and qualified name by default.

    Raises:
        ValueError: The name is taken by another class.
    """
    name = name or f"{cls.__module__}.{cls.__qualname__}"
    if _CLASSES.setdefault(name, cls) is not cls:
        raise ValueError(f"the name {name!r} is already taken by {_CLASSES[name]}")
    _NAMES.setdefault(cls, name)
    return cls


def registered_class(name: str) -> type:
    """The class registered as `name`.

    Raises:
        ValueError: There is none.
    """
    if name not in _CLASSES:
        raise ValueError(f"{name!r} is not a registered class: import its module and call rao_agents.register_class(cls) before loading")
    return _CLASSES[name]


def _register_defaults() -> None:
    for module, prefix, names in (
        (
            nn,
            "torch.nn",
            "Tanh ReLU ELU GELU SiLU LeakyReLU Sigmoid Softplus Identity Mish Hardswish SELU CELU",
        ),
        (th.optim, "torch.optim", "Adam AdamW SGD RMSprop NAdam RAdam Adamax Adagrad"),
        (rmsprop_tf_like, "stable_baselines3", "RMSpropTFLike"),
        (torch_layers, "stable_baselines3", "FlattenExtractor NatureCNN CombinedExtractor"),
        (policies, "stable_baselines3", "ActorCriticPolicy ActorCriticCnnPolicy MultiInputActorCriticPolicy"),
        (dqn_policies, "stable_baselines3.dqn", "DQNPolicy CnnPolicy MultiInputPolicy"),
        (buffers, "stable_baselines3", "ReplayBuffer DictReplayBuffer RolloutBuffer DictRolloutBuffer"),
        (maskable_buffers, "sb3_contrib", "MaskableRolloutBuffer MaskableDictRolloutBuffer"),
        (recurrent_buffers, "sb3_contrib", "RecurrentRolloutBuffer RecurrentDictRolloutBuffer"),
        (
            maskable_policies,
            "sb3_contrib",
            "MaskableActorCriticPolicy MaskableActorCriticCnnPolicy MaskableMultiInputActorCriticPolicy",
        ),
        (
            recurrent_policies,
            "sb3_contrib",
            "RecurrentActorCriticPolicy RecurrentActorCriticCnnPolicy RecurrentMultiInputActorCriticPolicy",
        ),
    ):
        for name in names.split():
            if hasattr(module, name):
                register_class(getattr(module, name), f"{prefix}.{name}")


_register_defaults()


def encode(value: Any, store: Arrays | None = None) -> Any:
    """`value` as something the json module writes.

    Args:
        value: numbers, text, containers, arrays, tensors, spaces, schedules and registered classes.
        store: takes larger arrays under new names, for the caller to keep beside the text. With a store,
            NumPy scalars keep their type; without, they become Python numbers.

    Raises:
        TypeError: A value of a kind that cannot be written, or a class that is not registered.
    """
    if value is None or (isinstance(value, (bool, int, str)) and not isinstance(value, Enum)):
        return value
    if isinstance(value, spaces.Space):  # before mappings: a Dict space is one
        return {TAG: "space", **_encode_space(value)}
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {TAG: "float", "value": repr(float(value))}
    if isinstance(value, Enum):
        return encode(value.value, store)
    if isinstance(value, np.generic) and store is None and value.dtype.kind in "biuf":
        return encode(value.item())
    if isinstance(value, (np.ndarray, np.generic)):
        return _encode_array(np.asarray(value), store)
    if isinstance(value, th.Tensor):
        return {TAG: "tensor", "value": _encode_array(value.detach().cpu().numpy(), store)}
    if isinstance(value, bytes):
        return {TAG: "bytes", "value": base64.b64encode(value).decode("ascii")}
    if isinstance(value, list):
        return [encode(item, store) for item in value]
    if isinstance(value, tuple):
        return {TAG: "tuple", "items": [encode(item, store) for item in value]}
    if isinstance(value, deque):
        return {TAG: "deque", "items": [encode(item, store) for item in value], "maxlen": value.maxlen}
    if isinstance(value, Mapping):
        if all(isinstance(key, str) for key in value) and TAG not in value:
            return {key: encode(item, store) for key, item in value.items()}
        return {
            TAG: "dict",
            "items": [[encode(key, store), encode(item, store)] for key, item in value.items()],
        }
    if isinstance(value, type):
        if value not in _NAMES:
            raise TypeError(
                f"the class {value.__module__}.{value.__qualname__} is not registered: call rao_agents.register_class on it before saving"
            )
        return {TAG: "class", "name": _NAMES[value]}
    if isinstance(value, (*schedules.KINDS.values(), utils.FloatSchedule, utils.ConstantSchedule, utils.LinearSchedule)):
        return {TAG: "schedule", **encode(schedules.describe(_table_if_needed(value)))}
    raise TypeError(f"a {type(value).__module__}.{type(value).__qualname__} cannot be written as JSON")


def decode(value: Any, store: Mapping[str, npt.NDArray[Any]] | None = None) -> Any:
    """What `encode` wrote.

    Raises:
        ValueError: It is damaged, or names a class that is not registered.
    """
    if isinstance(value, list):
        return [decode(item, store) for item in value]
    if not isinstance(value, dict):
        return value
    if TAG not in value:
        return {key: decode(item, store) for key, item in value.items()}
    kind = value[TAG]
    if not isinstance(kind, str) or kind not in _DECODERS:
        raise ValueError(f"unknown kind of value {kind!r}: written by a newer version?")
    try:
        return _DECODERS[kind](value, store)
    except (KeyError, TypeError, AttributeError, AssertionError, EOFError, OSError) as error:
        raise ValueError(f"damaged {kind}: {error}") from error


def load_array(content: bytes) -> npt.NDArray[Any]:
    """The array in the bytes of a .npy file.

    Raises:
        ValueError, EOFError, OSError: it is damaged. Memory is taken only for what is there: NumPy itself takes what the header announces.
    """
    file = io.BytesIO(content)
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"an array of format {version}")
    shape, _, dtype = (np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0)(file)
    # What holds objects NumPy refuses by itself.
    if not dtype.hasobject and (dtype.itemsize == 0 or math.prod(shape) * dtype.itemsize != len(content) - file.tell()):
        raise ValueError(f"an array of {shape} {dtype} announced, {len(content) - file.tell()} bytes found")
    array: npt.NDArray[Any] = np.load(io.BytesIO(content), allow_pickle=False)
    return array


def _table_if_needed(schedule: Any) -> Any:
    inner = schedule
    while isinstance(inner, utils.FloatSchedule):
        inner = inner.value_schedule
    try:
        schedules.describe(inner)
    except TypeError:
        # A function of the user's. What matters is its values; the code itself could not be read back safely.
        return schedules.tabulate(inner)
    return inner


def _encode_array(array: npt.NDArray[Any], store: Arrays | None) -> dict[str, Any]:
    if array.dtype.hasobject:
        raise TypeError("an array of Python objects cannot be written as JSON")
    if store is not None and array.nbytes > INLINE_BYTES:
        name = f"{len(store)}"
        store[name] = array
        return {TAG: "stored", "name": name}
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return {TAG: "array", "npy": base64.b64encode(file.getvalue()).decode("ascii")}


def _decode_array(value: Mapping[str, Any], store: Any) -> npt.NDArray[Any]:
    return load_array(base64.b64decode(value["npy"]))


def _decode_stored(value: Mapping[str, Any], store: Mapping[str, npt.NDArray[Any]] | None) -> npt.NDArray[Any]:
    if store is None or value["name"] not in store:
        raise ValueError(f"the array {value['name']!r} is missing")
    return store[value["name"]]


def _encode_space(space: spaces.Space[Any]) -> dict[str, Any]:
    name = type(space).__name__
    if type(space) is spaces.Box:
        bounds = {bound: _encode_bound(getattr(space, bound)) for bound in ("low", "high")}
        return {"type": name, "shape": list(space.shape), "dtype": space.dtype.str, **bounds}
    if type(space) is spaces.Discrete:
        return {"type": name, "n": int(space.n), "start": int(space.start), "dtype": space.dtype.str}
    if type(space) is spaces.MultiDiscrete:
        return {
            "type": name,
            "nvec": space.nvec.tolist(),
            "start": space.start.tolist(),
            "dtype": space.dtype.str,
        }
    if type(space) is spaces.MultiBinary:
        n = space.n
        return {"type": name, "n": int(n) if isinstance(n, (int, np.integer)) else [int(i) for i in n]}
    if type(space) is spaces.Dict:
        return {"type": name, "spaces": [[key, encode(sub)] for key, sub in space.spaces.items()]}
    if type(space) is spaces.Tuple:
        return {"type": name, "spaces": [encode(sub) for sub in space.spaces]}
    raise TypeError(f"a space of type {type(space).__name__} cannot be written as JSON")


def _encode_bound(bound: npt.NDArray[Any]) -> Any:
    same = bound.size > 0 and bool((bound == bound.flat[0]).all())
    return encode(bound.flat[0]) if same else encode(bound)


def _decode_space(value: Mapping[str, Any], store: Any) -> spaces.Space[Any]:
    name = value["type"]
    if name == "Box":
        dtype = np.dtype(value["dtype"])
        if math.prod(value["shape"]) > MOST_NUMBERS:
            raise ValueError(f"a Box of shape {value['shape']} is larger than any observation")
        low, high = (np.broadcast_to(np.asarray(decode(value[bound]), dtype), value["shape"]) for bound in ("low", "high"))
        return spaces.Box(low, high, tuple(value["shape"]), dtype.type)
    if name == "Discrete":
        discrete: spaces.Space[Any] = spaces.Discrete(value["n"], start=value["start"])
        return discrete
    if name == "MultiDiscrete":
        return spaces.MultiDiscrete(np.array(value["nvec"]), dtype=np.dtype(value["dtype"]).type, start=np.array(value["start"]))
    if name == "MultiBinary":
        return spaces.MultiBinary(value["n"])
    if name == "Dict":
        # An OrderedDict keeps its order, which is that of the network's inputs; a plain one would be sorted.
        return spaces.Dict(OrderedDict((key, _decode_space(sub, store)) for key, sub in value["spaces"]))
    if name == "Tuple":
        return spaces.Tuple([_decode_space(sub, store) for sub in value["spaces"]])
    raise ValueError(f"unknown space {name!r}")


def _decode_schedule(value: Mapping[str, Any], store: Any) -> Any:
    return schedules.from_description({key: decode(item) for key, item in value.items() if key != TAG})


_DECODERS: dict[str, Callable[[Any, Any], Any]] = {
    "float": lambda value, store: float(value["value"]),
    "array": _decode_array,
    "stored": _decode_stored,
    "tensor": lambda value, store: th.as_tensor(np.array(decode(value["value"], store))),
    "bytes": lambda value, store: base64.b64decode(value["value"]),
    "tuple": lambda value, store: tuple(decode(item, store) for item in value["items"]),
    "deque": lambda value, store: deque((decode(item, store) for item in value["items"]), maxlen=value["maxlen"]),
    "dict": lambda value, store: {decode(key, store): decode(item, store) for key, item in value["items"]},
    "space": _decode_space,
    "class": lambda value, store: registered_class(value["name"]),
    "schedule": _decode_schedule,
}
