"""`submission.json`, field by field. Unknown fields, wrong types and numbers out of range are refused."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints

from rao_leaderboard.protocol import PROTOCOL

FORMAT: Final = "rao-submission-1"

Slug = Annotated[str, StringConstraints(pattern=r"^[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?$")]
# No control characters, and none that are not seen or turn the direction of what follows: what a page shows is what is there. The two
# joiners (U+200C, U+200D) stay allowed inside a text, where Persian and Hindi names need them.
_SHOWN = r"[^\p{C}\p{Zl}\p{Zp}]|[\x{200c}\x{200d}]"
_VISIBLE = r"[^\p{C}\p{Z}\p{M}]"
Text = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=rf"^{_VISIBLE}(?:(?:{_SHOWN})*[^\p{{C}}\p{{Z}}])?$")]
LongText = Annotated[str, StringConstraints(max_length=2_000, pattern=rf"^(?:{_SHOWN}|\n)*$")]
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
FilePath = Annotated[
    str, StringConstraints(max_length=200, pattern=r"^[a-zA-Z0-9_][a-zA-Z0-9_.+-]*(?:/[a-zA-Z0-9_][a-zA-Z0-9_.+-]*){0,3}$")
]
EnvId = Annotated[str, StringConstraints(max_length=100, pattern=r"^RAO/[A-Za-z0-9-]+-v[0-9]+$")]
Url = Annotated[str, StringConstraints(max_length=300, pattern=r"^https://[A-Za-z0-9.-]+(?::[0-9]+)?(?:/[A-Za-z0-9._~/%+=&?#@:-]*)?$")]
Count = Annotated[int, Field(ge=0, le=10**12)]
Rate = Annotated[float, Field(ge=0, le=1)]
Mean = Annotated[float, Field(ge=-1e100, le=1e100)]


class Strict(BaseModel):
    """No unknown fields, no conversion between types, no infinities, no changes."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class File(Strict):
    """A file of the submission's folder: its path there, with slashes, its SHA-256 and its size in bytes."""

    path: FilePath
    sha256: Digest
    bytes: Annotated[int, Field(ge=1, le=2**31)]


class Artefact(Strict):
    """The policy itself, as files; nothing here is loaded unless it is ONNX and a re-run is asked for.

    Attributes:
        files: what the digest is of (`rao_leaderboard.protocol.artefact_digest`): weights, or the source of a scripted agent, or the
            description of a service (model, prompt, settings).
        onnx: path of the one among them that acts like the policy; None for none.
    """

    files: Annotated[tuple[File, ...], Field(min_length=1, max_length=64)]
    onnx: FilePath | None = None


class Result(Strict):
    """One run on one task. The means follow from the episodes in `trace`, which hold every action."""

    track: Literal["standard", "zero-shot", "open"]
    env_id: EnvId
    env_kwargs: dict[Literal["spawn", "observe_frame"], bool]
    trace: File
    episodes: Annotated[int, Field(ge=1, le=100_000)]
    success: Rate
    mean_return: Mean
    steps: Mean
    critical_path: Mean


class Point(Strict):
    """A point of a learning curve, as its author measured it."""

    steps: Count
    success: Rate


class Run(Strict):
    """One policy, and what it scored.

    Attributes:
        name: of the run, once in a submission.
        training_seed: None where nothing was trained.
        training_steps: environment steps of its training, 0 where nothing was trained; tuning does not count.
        trained_on: the ids (with arguments, as text) it was trained on.
        wall_clock: of the training, in seconds.
        deterministic: whether the policy took its greedy actions, or sampled.
        curve: success while learning; not verified.
    """

    name: Slug
    training_seed: Annotated[int, Field(ge=0, le=2**64 - 1)] | None
    training_steps: Count
    trained_on: Annotated[tuple[Text, ...], Field(max_length=64)]
    wall_clock: Annotated[float, Field(ge=0, le=1e10)] | None = None
    deterministic: bool
    artefact: Artefact
    results: Annotated[tuple[Result, ...], Field(min_length=1, max_length=64)]
    curve: Annotated[tuple[Point, ...], Field(max_length=1_000)] = ()


class Agent(Strict):
    """What acts.

    Attributes:
        name: as the table shows it.
        kind: "recursive" if it spawns, "monolithic" if not.
        interface: how `rao submit` ran it.
        context: "standard": it sees what the environment shows, and keeps nothing else from step to step but what its page says;
            "full-context": it keeps more than one frame's window.
    """

    name: Text
    kind: Literal["recursive", "monolithic"]
    algorithm: Text
    interface: Literal["model", "callable", "process", "language-model", "builtin"]
    context: Literal["standard", "full-context"] = "standard"
    description: LongText = ""


class Software(Strict):
    """What it ran on: versions by package, `rao-envs` among them."""

    python: Text
    platform: Text
    packages: Annotated[dict[Text, Text], Field(max_length=200)]


class Submission(Strict):
    """`submission.json`.

    Attributes:
        name: that of its folder.
        code_url: where the agent's code is; None for code that is not published elsewhere than here, or at all.
        created: with its time zone.
        environments: the fingerprint of each environment that was played (`rao_leaderboard.fingerprints`).
    """

    format: Literal["rao-submission-1"] = FORMAT
    protocol: Annotated[int, Field(ge=PROTOCOL, le=PROTOCOL)] = PROTOCOL  # a literal would take `true` for 1
    name: Slug
    agent: Agent
    authors: Annotated[tuple[Text, ...], Field(min_length=1, max_length=50)]
    code_url: Url | None
    commit: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{7,64}$")]
    created: AwareDatetime
    hardware: Text
    software: Software
    environments: Annotated[dict[EnvId, Digest], Field(min_length=1, max_length=100)]
    runs: Annotated[tuple[Run, ...], Field(min_length=1, max_length=50)]
