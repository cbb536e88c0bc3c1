"""Knowledge: what a distiller made of experience (MISSION B1, B4), in a form that can be inspected, saved and injected.

A file of knowledge is a zip of JSON and plain arrays. Reading one runs no code: it can be wrong, and is then refused, but it cannot do
anything.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, cast

import torch as th
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from typing_extensions import Self

from rao_agents import safe_json
from rao_agents.checkpoint import File, ModelFileError, _dump, _readable, _write_archive
from rao_agents.distillation.files import UNREADABLE, read_members, write_arrays
from rao_agents.distillation.observations import Observations, Values

if TYPE_CHECKING:
    from rao_agents.distillation.distillers.skills import SkillLibrary

FORMAT, FORMAT_VERSION = "rao-knowledge", 1
DOCUMENT = "knowledge.json"
MOST_BYTES = 1 << 30
"""Files that unpack to more than this are refused."""

WEIGHTED = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Bilinear, nn.Embedding)
"""Layers that count for the depth of a network."""


class KnowledgeFileError(ModelFileError):
    """A file of knowledge that cannot be read: damaged, foreign, of another version or of an unknown kind."""


@dataclass(frozen=True)
class Provenance:
    """Where knowledge comes from.

    Attributes:
        distiller: its name, with what it was told ("student(net_arch=[32])").
        iteration: policy iterations (rollouts learned from) when it was made.
        timesteps: environment steps until then.
        episodes, successes, steps: what it was distilled from: whole episodes, those known to have succeeded, and decisions.
        seed: of the distillation's own generator; -1 where it is not known.
        round: which distillation of its run it was, from 1; 0 outside a run.
    """

    distiller: str = ""
    iteration: int = 0
    timesteps: int = 0
    episodes: int = 0
    successes: int = 0
    steps: int = 0
    seed: int = -1
    round: int = 0


class Knowledge:
    """What a distiller produced; the base of every kind.

    A kind is a subclass with its own `kind`, which builds its networks in the constructor from `config` alone (plain values, spaces and
    registered classes: see `safe_json`) and offers some of the capabilities below; one that it does not offer answers None.
    `register_knowledge` makes its files readable.

    Capabilities take a batch of n observations (`Observations`) and masks bool (n, actions) or None; they answer tensors without
    gradient, on the networks' device.

    Attributes:
        config: what the networks are built from.
        networks: the networks by name; what is saved, moved and counted.
        figures: single numbers about how it was made (losses, agreement with the teacher, ...).
        history: a list of numbers for each of its losses, one per epoch.
        importance: how much each key of the observation matters to what it answers, shares that sum to 1; see `importance.py`.
        features: the same by single feature, the most important ones only.
        provenance: where it comes from.
    """

    kind: ClassVar[str] = ""
    offers: ClassVar[tuple[str, ...]] = ()
    """Names of the capabilities: among "action_log_probs", "value", "embed", "skills"."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config: dict[str, Any] = dict(config)
        self.networks = nn.ModuleDict()
        self.figures: dict[str, float] = {}
        self.history: dict[str, list[float]] = {}
        self.importance: dict[str, float] = {}
        self.features: dict[str, float] = {}
        self.provenance = Provenance()

    # -- capabilities ----------------------------------------------------------------------------------

    def action_log_probs(self, obs: Observations, masks: Values | None = None) -> th.Tensor | None:
        """As a teacher: log-probabilities of all actions, (n, actions) float32; about -1e8 where masked."""
        return None

    def value(self, obs: Observations) -> th.Tensor | None:
        """How good the states are, (n,) float32; on which scale, the kind says."""
        return None

    def embed(self, obs: Observations) -> th.Tensor | None:
        """The states as vectors, (n, d) float32."""
        return None

    @property
    def skills(self) -> SkillLibrary | None:
        """The skills found."""
        return None

    # -- what it is ------------------------------------------------------------------------------------

    def parameters(self) -> int:
        """How many numbers its networks have that were learned."""
        return sum(parameter.numel() for parameter in self.networks.parameters())

    def depth(self) -> int:
        """Layers with weights that an observation passes through, at most (one network after another is not assumed)."""
        return max((sum(isinstance(layer, WEIGHTED) for layer in net.modules()) for net in self.networks.values()), default=0)

    def to(self, device: th.device | str) -> Self:
        """Move the networks; returns itself."""
        self.networks.to(device)
        return self

    @property
    def device(self) -> th.device:
        """Where the networks are."""
        parameter = next(self.networks.parameters(), None)
        return th.device("cpu") if parameter is None else parameter.device

    def extra(self) -> dict[str, Any]:
        """What the kind keeps besides its networks: plain values and arrays."""
        return {}

    def set_extra(self, extra: Mapping[str, Any]) -> None:
        """Take back what `extra` gave; a kind that keeps something checks it.

        Raises:
            ValueError: it is not what `extra` gives.
        """
        if extra:
            raise ValueError(f"{self.kind} knowledge keeps nothing besides its networks, got {sorted(extra)}")

    def inspect(self) -> dict[str, Any]:
        """All there is to know about it, as plain values that JSON can hold."""
        return {
            "kind": self.kind,
            "offers": list(self.offers),
            "parameters": self.parameters(),
            "depth": self.depth(),
            "networks": {name: _describe(net) for name, net in self.networks.items()},
            "figures": dict(self.figures),
            "history": {name: list(values) for name, values in self.history.items()},
            "importance": dict(self.importance),
            "features": dict(self.features),
            "provenance": asdict(self.provenance),
        }

    def __str__(self) -> str:
        source = self.provenance
        offers = ", ".join(self.offers) or "nothing"
        lines = [f"{self.kind} knowledge: {self.parameters():,} parameters, {self.depth()} layers; offers {offers}"]
        lines.append(
            f"  from {source.episodes:,} episodes ({source.successes:,} succeeded, {source.steps:,} steps) "
            f"at iteration {source.iteration:,} ({source.timesteps:,} environment steps), by {source.distiller or 'an unnamed distiller'}"
        )
        if self.figures:
            lines.append("  " + ", ".join(f"{name} {value:.4g}" for name, value in self.figures.items()))
        for title, shares in (("reads", self.importance), ("above all", self.features)):
            if shares:
                most = sorted(shares.items(), key=lambda item: -item[1])[:6]
                lines.append(f"  {title}: " + ", ".join(f"{name or 'the observation'} {share:.0%}" for name, share in most))
        return "\n".join(lines)

    # -- files -----------------------------------------------------------------------------------------

    def save(self, path: File) -> None:
        """Write it, atomically: to a path (".zip" is added where it has no suffix) or a writable binary file.

        Raises:
            TypeError: `config` or `extra` hold what cannot be written safely.
        """
        arrays: safe_json.Arrays = {}
        document = {
            "format": FORMAT,
            "version": FORMAT_VERSION,
            "kind": self.kind,
            "config": safe_json.encode(self.config, arrays),
            "extra": safe_json.encode(self.extra(), arrays),
            "networks": safe_json.encode({name: dict(net.state_dict()) for name, net in self.networks.items()}, arrays),
            "figures": safe_json.encode(self.figures),
            "history": safe_json.encode(self.history),
            "importance": safe_json.encode(self.importance),
            "features": safe_json.encode(self.features),
            "provenance": asdict(self.provenance),
        }
        members = {DOCUMENT: _dump(document)} | write_arrays(arrays)
        _write_archive(path, members)

    def to_bytes(self) -> bytes:
        """The file's content, for sending it to another process."""
        file = io.BytesIO()
        self.save(file)
        return file.getvalue()

    @staticmethod
    def load(path: File, device: th.device | str = "cpu") -> Knowledge:
        """Read what `save` wrote, of whatever registered kind.

        Raises:
            FileNotFoundError: no such file.
            KnowledgeFileError: damaged, foreign, of another version or of an unknown kind.
        """
        with _readable(path) as (file, name):
            document = _read(file, name)
        kind = document.get("kind")
        if not isinstance(kind, str) or kind not in _KINDS:
            raise KnowledgeFileError(f"{name} holds {kind!r} knowledge; known kinds: {', '.join(sorted(_KINDS))} (see register_knowledge)")
        try:
            with _NoLargerThan(_numbers(_mapping(document, "networks"))):
                knowledge = _KINDS[kind](_mapping(document, "config"))
            _load_networks(knowledge.networks, _mapping(document, "networks"))
            knowledge.set_extra(_mapping(document, "extra"))
            knowledge.figures = {key: _number(value) for key, value in _mapping(document, "figures").items()}
            knowledge.history = {key: [_number(value) for value in values] for key, values in _mapping(document, "history").items()}
            knowledge.importance = {key: _number(value) for key, value in _mapping(document, "importance").items()}
            knowledge.features = {key: _number(value) for key, value in _mapping(document, "features").items()}
            knowledge.provenance = _provenance(_mapping(document, "provenance"))
        except (*UNREADABLE, AssertionError, OverflowError) as error:
            raise KnowledgeFileError(f"{name} is damaged, or of a newer version: {error}") from error
        return knowledge.to(device)

    @staticmethod
    def from_bytes(content: bytes, device: th.device | str = "cpu") -> Knowledge:
        """As `load`, from what `to_bytes` gave."""
        return Knowledge.load(io.BytesIO(content), device)


_KINDS: dict[str, type[Knowledge]] = {}


def register_knowledge(cls: type[Knowledge]) -> type[Knowledge]:
    """Let `Knowledge.load` make knowledge of class `cls`, by its `kind`; a decorator.

    Raises:
        ValueError: it has no kind, or another class has it already.
    """
    if not cls.kind:
        raise ValueError(f"{cls.__name__} needs a class attribute `kind`, a word that names it in files")
    if _KINDS.setdefault(cls.kind, cls) is not cls:
        raise ValueError(f"the kind {cls.kind!r} is already taken by {_KINDS[cls.kind].__name__}")
    return cls


def _describe(net: nn.Module) -> dict[str, Any]:
    layers = [f"{name}: {layer}" if name else str(layer) for name, layer in net.named_modules() if isinstance(layer, WEIGHTED)]
    return {"parameters": sum(parameter.numel() for parameter in net.parameters()), "layers": layers}


def _read(file: Any, name: str) -> dict[str, Any]:
    """The document of an open file, its arrays put in place."""
    try:
        members, arrays = read_members(file, MOST_BYTES)
        if DOCUMENT not in members:
            raise KnowledgeFileError(f"{name} does not hold knowledge: it has no {DOCUMENT}")
        raw = json.loads(members[DOCUMENT])
        if not isinstance(raw, dict) or raw.get("format") != FORMAT:
            raise KnowledgeFileError(f"{name} does not hold knowledge")
        if raw.get("version") != FORMAT_VERSION:
            raise KnowledgeFileError(f"{name} is of format version {raw.get('version')}, this is version {FORMAT_VERSION}")
        return cast(dict[str, Any], safe_json.decode(raw, arrays))
    except KnowledgeFileError:
        raise
    except UNREADABLE as error:
        raise KnowledgeFileError(f"{name} is not a file of knowledge, or it is truncated or damaged ({error})") from error


def _mapping(document: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = document[key]
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise ValueError(f"{key} is not a table of named values")
    return value


class _NoLargerThan(TorchDispatchMode):
    """Within it no tensor comes into being that could not be one of a network with so many numbers.

    A file of a few bytes could otherwise describe a network that no memory holds.
    """

    ROOM = 1 << 20
    """Numbers allowed anyway: what constructors try a network out with."""

    def __init__(self, numbers: int) -> None:
        super().__init__()
        self.most = max(numbers, self.ROOM)

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        size = args[0] if args and isinstance(args[0], (list, tuple)) else ()
        if all(isinstance(length, int) for length in size) and math.prod(size) > self.most:
            raise ValueError(f"it describes a network larger than the weights it holds: a tensor of {'x'.join(map(str, size))}")
        return func(*args, **(kwargs or {}))


def _numbers(states: Mapping[str, Any]) -> int:
    """How many numbers the tensors of state dictionaries hold."""
    tensors = [value for state in states.values() if isinstance(state, dict) for value in state.values()]
    return sum(value.numel() for value in tensors if isinstance(value, th.Tensor))


def _load_networks(networks: nn.ModuleDict, states: Mapping[str, Any]) -> None:
    if set(states) != set(networks):
        raise ValueError(f"the networks are {sorted(states)}, expected {sorted(networks)}")
    for name, net in networks.items():
        state = states[name]
        if not isinstance(state, dict) or not all(isinstance(value, th.Tensor) for value in state.values()):
            raise ValueError(f"the network {name!r} is not a table of tensors")
        for key, value in state.items():
            if value.is_floating_point() and not bool(th.isfinite(value).all()):
                raise ValueError(f"{name}.{key} holds numbers that are not finite")
        net.load_state_dict(state, strict=True)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{value!r} is not a number")
    return float(value)


def _provenance(values: Mapping[str, Any]) -> Provenance:
    known = {field.name: field.type for field in fields(Provenance)}
    if set(values) != set(known):
        raise ValueError(f"the provenance has {sorted(values)}, expected {sorted(known)}")
    for name, value in values.items():
        if not isinstance(value, str if name == "distiller" else int) or isinstance(value, bool):
            raise ValueError(f"the provenance's {name} cannot be {value!r}")
    return Provenance(**values)


def finite(value: float) -> float:
    """`value`, or 0.0 where it is not finite: figures go into JSON."""
    return float(value) if math.isfinite(value) else 0.0
