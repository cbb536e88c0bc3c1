"""The folder of a training run, and writing files so that a crash never leaves half of one."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from rao_baselines.errors import UserError
from rao_envs.core.arguments import quoted_path
from rao_envs.core.files import check_replaceable, replacing


class RunFolder:
    """Where a run's files are.

    `config.json`, `curve.json`, `model.zip`, `checkpoint.zip` (while it is unfinished), `evaluation-*.json` (the final episodes) and
    `result.json`. With self-distillation also `distillation/`, with what every round made, `student.zip`, the last
    student, and `distillation-STEPS.zip`, which belongs
    to the checkpoint of that many steps.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.json"
        self.curve = path / "curve.json"
        self.model = path / "model.zip"
        self.checkpoint = path / "checkpoint.zip"
        self.result = path / "result.json"
        self.rounds = path / "distillation"
        self.student = path / "student.zip"

    def evaluation(self, mode: str) -> Path:
        """Records of the final evaluation's episodes."""
        return self.path / f"evaluation-{mode}.json"

    def distillation(self, steps: int) -> Path:
        """The state of the distillation at the checkpoint of `steps`."""
        return self.path / f"distillation-{steps}.zip"

    def distillations(self) -> list[Path]:
        """All such states that are there."""
        return sorted(self.path.glob("distillation-*.zip"))

    @property
    def finished(self) -> bool:
        """Whether the run has its result."""
        return self.result.is_file()


def check_folder(folder: Path) -> None:
    """Make the folder if it is not there. Asked before the work whose results go into it, which may take hours.

    Raises:
        UserError: it cannot be made, or nothing can be written into it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        raise UserError(f"cannot write into the folder {quoted_path(folder)}: {getattr(error, 'strerror', None) or error}") from error


def check_file(path: Path) -> None:
    """As `check_folder`, for one file.

    Raises:
        UserError: it is a folder, or cannot be written where it is to be.
    """
    if path.is_dir():
        raise UserError(f"{quoted_path(path)} is a folder; name a file in it")
    try:
        check_replaceable(path)
    except OSError as error:
        raise UserError(str(error)) from error
    check_folder(path.parent)


def write_atomically(path: Path, text: str) -> None:
    """Write `text` to `path` in one step: readers see the old file or the new one."""
    write_bytes_atomically(path, text.encode("utf-8"))


def write_bytes_atomically(path: Path, content: bytes) -> None:
    """As `write_atomically`, for bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write(content)


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON, atomically."""
    write_atomically(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """The JSON in `path`.

    Raises:
        UserError: missing, or not JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"there is no file {path}") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}") from error


def slug(text: str) -> str:
    """`text` as part of a file name: "RAO/Maze-20x20-v0" gives "Maze-20x20-v0"."""
    return "".join(char if char.isalnum() or char in "-._=" else "_" for char in text.removeprefix("RAO/"))
