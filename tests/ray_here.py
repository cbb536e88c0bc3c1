"""Ray's part of a conversation, played in this process at once: what is sent is pickled, and its arrays come out read-only, as from Ray."""

from __future__ import annotations

import contextlib
import itertools
import pickle
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import cloudpickle
import pytest


class TaskError(Exception):
    """What ran has failed."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.cause = cause


class ActorError(Exception):
    """Who ran it has gone."""


class Reference:
    """To something that was sent, or to an answer; the store it is in is not pickled with it."""

    _numbers = itertools.count()

    def __init__(self) -> None:
        self.number = next(self._numbers)

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reference) and other.number == self.number


def sent(value: Any) -> Any:
    """`value` at the other end."""
    buffers: list[Any] = []
    data = cloudpickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    return pickle.loads(data, buffers=[memoryview(bytes(buffer)) for buffer in buffers])


class Handle:
    """Of an actor."""

    def __init__(self, ray: RayHere, kind: type) -> None:
        self.ray, self.object, self.dead = ray, kind(), False

    def __getattr__(self, name: str) -> Any:
        return SimpleNamespace(remote=lambda *arguments: self.ray.call(self, name, arguments))


class RayHere:
    """What of the module `ray` the runners use.

    Args:
        fate: asked before each call, with the actor and the method's name: "lost" ends the actor, "hangs" leaves the call without an
            answer, and "" lets it run.
    """

    exceptions = SimpleNamespace(
        RayTaskError=TaskError,
        RayActorError=ActorError,
        ObjectLostError=ActorError,
        WorkerCrashedError=ActorError,
        NodeDiedError=ActorError,
    )

    def __init__(self, fate: Callable[[Handle, str], str]) -> None:
        self.fate = fate
        self.actors: list[Handle] = []
        self.store: dict[Reference, Any] = {}

    def is_initialized(self) -> bool:
        return True

    def put(self, value: Any) -> Reference:
        reference = Reference()
        self.store[reference] = sent(value)
        return reference

    def get(self, reference: Reference) -> Any:
        value = self.store[reference]
        if isinstance(value, (TaskError, ActorError)):
            raise value
        return value

    def wait(self, references: Sequence[Reference], num_returns: int = 1, timeout: float | None = None) -> tuple[list[Any], list[Any]]:
        ready = [reference for reference in references if reference in self.store][:num_returns]
        return ready, [reference for reference in references if reference not in ready]

    def remote(self, **_: Any) -> Callable[[type], Any]:
        def hired(kind: type) -> Handle:
            self.actors.append(Handle(self, kind))
            return self.actors[-1]

        def ran(function: Any, arguments: tuple[Any, ...]) -> Reference:
            return self.call(SimpleNamespace(dead=False, object=SimpleNamespace(task=function)), "task", arguments)

        def remote(what: Any) -> Any:
            return SimpleNamespace(remote=lambda *arguments: hired(what) if isinstance(what, type) else ran(what, arguments))

        return remote

    def kill(self, actor: Handle) -> None:
        actor.dead = True

    def call(self, actor: Any, name: str, arguments: tuple[Any, ...]) -> Reference:
        reference, fate = Reference(), self.fate(actor, name)
        if actor.dead or fate == "lost":
            actor.dead = True
            self.store[reference] = ActorError("it has gone")
        elif fate != "hangs":
            given = [self.get(argument) if isinstance(argument, Reference) else sent(argument) for argument in arguments]
            try:
                self.store[reference] = sent(getattr(actor.object, name)(*given))
            except Exception as error:
                self.store[reference] = TaskError(sent(error))
        return reference


@contextlib.contextmanager
def ray_here(module: Any, fate: Callable[[Handle, str], str] = lambda actor, name: "") -> Iterator[RayHere]:
    """`module` (`rao_agents.runners.on_ray`, say) talks to this instead of Ray."""
    ray = RayHere(fate)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "connected", lambda *_: contextlib.nullcontext(ray))
        patch.setattr(module, "cpus", lambda _: 2)
        patch.setattr(module, "import_ray", lambda: ray, raising=False)
        yield ray
