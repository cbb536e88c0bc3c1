"""What an evaluation leaves behind: records of episodes, their summary, and the file that holds both."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rao_envs.core.files import replacing

FORMAT = "rao-evaluation-1"
"""Written into every file; a change of meaning gets a new name."""

DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""One character per action where an action space has at most this many; else decimal numbers separated by
spaces."""

Z_95 = 1.959963984540054
"""97.5 % quantile of the normal distribution."""

T_95 = (12.706204736, 4.302652730, 3.182446305, 2.776445105)
"""The same of Student's t with 1 to 4 degrees of freedom."""

MAX_COUNT = 2**31 - 1
MAX_SEED = 2**64 - 1
MAX_RETURN = 1e100


@dataclass(frozen=True, eq=False)
class Episode:
    """One finished episode.

    Attributes:
        seed: what the episode was reset with.
        success: whether the root task was solved; None where the environment does not say
            (`info["is_success"]`).
        return_: undiscounted sum of rewards.
        steps: environment steps, anywhere in the tree.
        nodes: frames opened, the root included.
        deepest: deepest level reached; the root is level 0.
        spawns: spawn actions taken.
        critical_path: steps along the longest dependent chain.
        actions: every action in order, int64 (steps,): with the seed, all it takes to re-run the episode.
    """

    seed: int
    success: bool | None
    return_: float
    steps: int
    nodes: int
    deepest: int
    spawns: int
    critical_path: int
    actions: npt.NDArray[np.int64] = field(repr=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Episode) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Any, ...]:
        return (*(getattr(self, name) for name in _FIELDS), self.actions.tobytes())


_FIELDS = ("seed", "success", "return_", "steps", "nodes", "deepest", "spawns", "critical_path")

RECORD = np.dtype(
    [
        ("seed", np.uint64),
        ("success", np.int8),  # -1: the environment does not say
        ("return", np.float64),
        ("steps", np.int64),
        ("nodes", np.int64),
        ("deepest", np.int64),
        ("spawns", np.int64),
        ("critical_path", np.int64),
    ]
)
"""An episode without its actions, as `Evaluation.table` holds it."""


class Interval(NamedTuple):
    """A mean over `n` episodes with its 95 % interval; `low` and `high` are None for a mean of one number."""

    mean: float
    low: float | None
    high: float | None
    n: int


def wilson(successes: int, n: int) -> Interval:
    """A success rate with Wilson's score interval (Wilson 1927): inside [0, 1], not empty at 0 or 1."""
    rate, z2 = successes / n, Z_95 * Z_95
    centre = (rate + z2 / (2 * n)) / (1 + z2 / n)
    half = Z_95 / (1 + z2 / n) * math.sqrt(rate * (1 - rate) / n + z2 / (4 * n * n))
    # At 0 and 1 the bound is the rate itself; rounding must not move it past.
    return Interval(rate, min(rate, max(0.0, centre - half)), max(rate, min(1.0, centre + half)), n)


def mean_interval(values: Sequence[float]) -> Interval:
    """The mean of at least one number with Student's t interval; exactly the same in any order."""
    n = len(values)
    mean = math.fsum(values) / n
    if n == 1:
        return Interval(mean, None, None, 1)
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1))
    half = t_95(n - 1) * spread / math.sqrt(n)
    return Interval(mean, mean - half, mean + half, n)


def t_95(freedom: int) -> float:
    """97.5 % quantile of Student's t distribution, within 0.0003 (Abramowitz and Stegun 26.7.5)."""
    if freedom <= len(T_95):
        return T_95[freedom - 1]
    z, v = Z_95, float(freedom)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / v ** (k + 1) for k, term in enumerate(terms))


@dataclass(frozen=True)
class Evaluation:
    """The episodes of one agent on one environment, in the order of the seed list.

    Attributes:
        env_id: the versioned id, or the name of the class that was evaluated.
        env_kwargs: the keyword arguments it was made with, as plain JSON values (arrays as their digest).
        agent: name of the model's class or of the callable.
        deterministic: whether the agent was asked for its greedy actions.
        n_actions: size of the action space; an action is in [0, n_actions).
        version: of this package.
        episodes: at least one; no seed occurs twice.
    """

    env_id: str
    env_kwargs: dict[str, Any]
    agent: str
    deterministic: bool
    n_actions: int
    version: str
    episodes: tuple[Episode, ...]

    @property
    def table(self) -> npt.NDArray[Any]:
        """The records without their actions, RECORD (episodes,)."""
        rows = [(e.seed, -1 if e.success is None else e.success, e.return_, *_counts(e)) for e in self.episodes]
        return np.array(rows, RECORD)

    def summary(self) -> dict[str, Interval | None]:
        """Means with 95 % intervals: Wilson's for `success`, Student's for the others.

        `steps_of_successes` averages over the solved episodes only. Success is None where the environment
        does not report it, `steps_of_successes` where nothing was solved.
        """
        episodes = self.episodes
        solved = [episode for episode in episodes if episode.success]
        reported = all(episode.success is not None for episode in episodes)
        result: dict[str, Interval | None] = {
            "success": wilson(len(solved), len(episodes)) if reported else None,
            "return": mean_interval([episode.return_ for episode in episodes]),
            "steps": mean_interval([episode.steps for episode in episodes]),
            "steps_of_successes": mean_interval([episode.steps for episode in solved]) if solved else None,
        }
        for name in ("nodes", "deepest", "spawns", "critical_path"):
            result[name] = mean_interval([getattr(episode, name) for episode in episodes])
        return result

    def __str__(self) -> str:
        arguments = "".join(f" {name}={value!r}" for name, value in self.env_kwargs.items())
        manner = "greedy" if self.deterministic else "sampled"
        lines = [
            f"{self.agent} ({manner}) on {self.env_id}{arguments}: {len(self.episodes)} episodes",
            f"{'':<20}{'mean':>10}   95 % interval",
        ]
        for name, value in self.summary().items():
            label = name.replace("_", " ")
            if value is None:
                lines.append(f"{label:<20}{'-':>10}")
                continue
            digits = 3 if name in ("success", "return") else 1
            interval = "" if value.low is None else f"   {value.low:.{digits}f} to {value.high:.{digits}f}"
            lines.append(f"{label:<20}{value.mean:>10.{digits}f}{interval}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON values; `from_dict` reads it back."""
        return {
            "format": FORMAT,
            "env_id": self.env_id,
            "env_kwargs": self.env_kwargs,
            "agent": self.agent,
            "deterministic": self.deterministic,
            "n_actions": self.n_actions,
            "version": self.version,
            "summary": {name: None if value is None else value._asdict() for name, value in self.summary().items()},
            "episodes": [
                {
                    **{name.rstrip("_"): getattr(episode, name) for name in _FIELDS},
                    "actions": encode_actions(episode.actions, self.n_actions),
                }
                for episode in self.episodes
            ],
        }

    @classmethod
    def from_dict(cls, data: Any) -> Evaluation:
        """The evaluation that `to_dict` wrote down.

        Raises:
            ValueError: `data` is anything else: a missing or unknown entry, a wrong type, a number out of
                range, a trace that does not fit its episode, or a summary that does not follow from the
                episodes. The message says where.
        """
        _take(
            data,
            "",
            (
                "format",
                "env_id",
                "env_kwargs",
                "agent",
                "deterministic",
                "n_actions",
                "version",
                "summary",
                "episodes",
            ),
        )
        if data["format"] != FORMAT:
            raise ValueError(f"format: expected {FORMAT!r}, got {data['format']!r:.60}")
        for name in ("env_id", "agent", "version"):
            if not isinstance(data[name], str) or not data[name]:
                raise ValueError(f"{name}: must be a text that is not empty, got {data[name]!r:.60}")
        if not isinstance(data["env_kwargs"], dict):
            raise ValueError(f"env_kwargs: must be an object, got {data['env_kwargs']!r:.60}")
        if not isinstance(data["deterministic"], bool):
            raise ValueError(f"deterministic: must be true or false, got {data['deterministic']!r:.60}")
        n_actions = _count(data["n_actions"], "n_actions", 1, MAX_COUNT)
        if not isinstance(data["episodes"], list) or not data["episodes"]:
            raise ValueError("episodes: must be a list of at least one episode")
        episodes = tuple(_read_episode(entry, f"episodes[{k}]", n_actions) for k, entry in enumerate(data["episodes"]))
        seeds: set[int] = set()
        for k, episode in enumerate(episodes):
            if episode.seed in seeds:
                raise ValueError(f"episodes[{k}].seed: {episode.seed} occurs twice")
            seeds.add(episode.seed)
        names = ("env_id", "env_kwargs", "agent", "deterministic", "n_actions", "version")
        evaluation = cls(**{name: data[name] for name in names}, episodes=episodes)
        _check_summary(data["summary"], evaluation.summary())
        return evaluation

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a JSON file, one line per episode; readers see the old file or the whole new one.

        Raises:
            OSError: the file cannot be written. What stood there before is untouched.
        """
        data = self.to_dict()
        rows = ",\n  ".join(_compact(episode) for episode in data.pop("episodes"))
        entries = [f"{json.dumps(name)}: {_compact(value)}" for name, value in data.items()]
        text = "{\n" + ",\n".join((*entries, f'"episodes": [\n  {rows}\n]')) + "\n}\n"
        with replacing(path) as file:
            file.write(text.encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Evaluation:
        """Read what `save` wrote.

        Raises:
            OSError: the file cannot be read.
            ValueError: it is not such a file, or was changed so that it contradicts itself; see `from_dict`.
        """
        content = Path(path).read_bytes()
        try:
            return cls.from_dict(parse_json(content))
        except ValueError as error:
            raise ValueError(f"{os.fspath(path)} is not a valid evaluation: {error}") from None


def encode_actions(actions: npt.NDArray[np.int64], n_actions: int) -> str:
    """A trace as text; see `DIGITS`."""
    if n_actions <= len(DIGITS):
        return "".join(map(DIGITS.__getitem__, actions.tolist()))
    return " ".join(map(str, actions.tolist()))


def decode_actions(text: str, n_actions: int) -> npt.NDArray[np.int64]:
    """The trace that `encode_actions` wrote, int64 (steps,); raises ValueError for any other text."""
    if n_actions <= len(DIGITS):
        codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
        table = np.full(128, -1, np.int64)
        table[[ord(digit) for digit in DIGITS[:n_actions]]] = np.arange(n_actions)
        actions = table[np.minimum(codes, 127)]
        if (actions < 0).any():
            raise ValueError(f"{text[int(np.argmax(actions < 0))]!r} is not one of the {n_actions} actions")
        return actions
    parts = text.split(" ") if text else []
    for part in parts:
        if not part.isdecimal() or not part.isascii() or part != str(int(part[:20])) or int(part) >= n_actions:
            raise ValueError(f"{part!r:.60} is not one of the {n_actions} actions")
    return np.array(parts, np.int64)


def plain(value: Any) -> Any:
    """A keyword argument as JSON can hold it: arrays as their digest, anything unknown as its text."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, np.ndarray):
        digest = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
        return f"array {value.dtype} {list(value.shape)} sha256:{digest}"
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, Iterable):
        return [plain(entry) for entry in value]
    return getattr(value, "__qualname__", None) or type(value).__qualname__


def _counts(episode: Episode) -> tuple[int, ...]:
    return episode.steps, episode.nodes, episode.deepest, episode.spawns, episode.critical_path


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def parse_json(content: bytes) -> Any:
    """Strict JSON: UTF-8, no key twice, no NaN or infinity."""
    try:
        text = content.decode("utf-8")
        return json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant, parse_float=_finite)
    except UnicodeDecodeError:
        raise ValueError("it is not a text in UTF-8") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ValueError(f"the key {name!r:.60} occurs twice")
            seen.add(name)
    return result


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text:.60} is too large")
    return value


def _take(data: Any, place: str, names: tuple[str, ...]) -> None:
    """Raise ValueError unless `data` is an object with exactly these entries."""
    where = f"{place}: " if place else ""
    if not isinstance(data, dict):
        raise ValueError(f"{where}must be an object, got {data!r:.60}")
    missing, unknown = [n for n in names if n not in data], [n for n in data if n not in names]
    if missing or unknown:
        parts = [
            f"{word} {', '.join(f'{name!r:.60}' for name in found)}"
            for word, found in (("missing", missing), ("unknown", unknown))
            if found
        ]
        raise ValueError(f"{where}{'; '.join(parts)}")


def _count(value: Any, place: str, low: int, high: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"{place}: must be an integer in [{low}, {high}], got {value!r:.60}")
    return value


def _read_episode(data: Any, place: str, n_actions: int) -> Episode:
    _take(data, place, (*(name.rstrip("_") for name in _FIELDS), "actions"))
    success, total = data["success"], data["return"]
    if success is not None and not isinstance(success, bool):
        raise ValueError(f"{place}.success: must be true, false or null, got {success!r:.60}")
    # The bound keeps the summary's squares finite.
    if not isinstance(total, (int, float)) or isinstance(total, bool) or not abs(total) <= MAX_RETURN:
        raise ValueError(f"{place}.return: must be a number in [-1e100, 1e100], got {total!r:.60}")
    if not isinstance(data["actions"], str):
        raise ValueError(f"{place}.actions: must be a text, got {data['actions']!r:.60}")
    try:
        actions = decode_actions(data["actions"], n_actions)
    except ValueError as error:
        raise ValueError(f"{place}.actions: {error}") from None
    steps = _count(data["steps"], f"{place}.steps", 1, MAX_COUNT)
    if len(actions) != steps:
        raise ValueError(f"{place}.actions: {len(actions)} actions for {steps} steps")
    return Episode(
        seed=_count(data["seed"], f"{place}.seed", 0, MAX_SEED),
        success=success,
        return_=float(total),
        steps=steps,
        # Every frame but the root was opened by a spawn, which cost a step; a spawn may open several.
        nodes=_count(data["nodes"], f"{place}.nodes", 1, MAX_COUNT),
        deepest=_count(data["deepest"], f"{place}.deepest", 0, MAX_COUNT),
        spawns=_count(data["spawns"], f"{place}.spawns", 0, steps),
        critical_path=_count(data["critical_path"], f"{place}.critical_path", 1, steps),
        actions=actions,
    )


def _check_summary(data: Any, expected: Mapping[str, Interval | None]) -> None:
    _take(data, "summary", tuple(expected))
    for name, value in expected.items():
        place = f"summary.{name}"
        if value is None:
            if data[name] is not None:
                raise ValueError(f"{place}: must be null for these episodes")
            continue
        _take(data[name], place, Interval._fields)
        for part, number in value._asdict().items():
            if not _same(data[name][part], number):
                raise ValueError(f"{place}.{part}: {data[name][part]!r:.60} does not follow from the episodes ({number!r})")


def _same(given: Any, computed: float | None) -> bool:
    if computed is None or given is None:
        return given is computed
    if not isinstance(given, (int, float)) or isinstance(given, bool):
        return False
    # The first comparison keeps integers too large for a float from the subtraction.
    return abs(given) <= 2 * MAX_RETURN and abs(given - computed) <= 1e-9 * max(1.0, abs(computed))
