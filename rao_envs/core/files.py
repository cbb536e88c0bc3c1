"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A binary file that takes the place of `path` when it is complete, and not before: readers see the old file or the whole new one.

    Raises:
        OSError: it cannot be written, or what stands there is no file but a device, say, whose place no file should take. What stood
            there before is untouched.
    """
    target = Path(path)
    check_replaceable(target)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def check_replaceable(path: Path) -> None:
    """Raise OSError where a file would take the place of something that is neither file nor folder."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise OSError(f"{os.fspath(path)} is a device or a pipe: name a file")
