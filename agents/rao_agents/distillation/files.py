"""State files: plain values and arrays in a zip that runs no code when it is read."""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from rao_agents import safe_json
from rao_agents.checkpoint import File, ModelFileError, _dump, _readable, _write_archive

FORMAT, FORMAT_VERSION = "rao-distillation", 1
DOCUMENT, ARRAYS = "state.json", "arrays/"
MOST_STATE_BYTES = 1 << 34
"""State files that unpack to more than this are refused."""

UNREADABLE = (zipfile.BadZipFile, zlib.error, KeyError, TypeError, ValueError, AttributeError, EOFError, OSError, RuntimeError, MemoryError)
"""What reading a damaged or hostile archive raises; RuntimeError also for encryption, unknown compression and endless nesting."""


def write_arrays(arrays: Mapping[str, npt.NDArray[Any]]) -> dict[str, bytes]:
    """Members of an archive that hold `arrays`."""
    members = {}
    for name, array in arrays.items():
        file = io.BytesIO()
        np.save(file, array, allow_pickle=False)
        members[f"{ARRAYS}{name}.npy"] = file.getvalue()
    return members


def read_members(file: BinaryIO, most_bytes: int) -> tuple[dict[str, bytes], safe_json.Arrays]:
    """The members of an archive, and the arrays among them.

    Raises:
        ValueError: it unpacks to more than `most_bytes`, or an array announces more than its member holds.
        Exception: any of `UNREADABLE`.
    """
    with zipfile.ZipFile(file) as archive:
        size = sum(entry.file_size for entry in archive.infolist())
        if size > most_bytes:
            raise ValueError(f"it unpacks to {size:,} bytes, more than the {most_bytes:,} allowed")
        members = {entry: archive.read(entry) for entry in archive.namelist()}
    arrays = {
        entry.removeprefix(ARRAYS).removesuffix(".npy"): safe_json.load_array(members[entry])
        for entry in members
        if entry.startswith(ARRAYS)
    }
    return members, arrays


def write_state(path: File, state: Mapping[str, Any], compressed: bool = True) -> None:
    """Write `state` (plain values, arrays and tensors) atomically; ".zip" is added where the path has no suffix.

    Compressing takes some ten times as long as writing: what is read at once and then thrown away is written without.

    Raises:
        TypeError: a value that cannot be written.
    """
    arrays: safe_json.Arrays = {}
    document = {"format": FORMAT, "version": FORMAT_VERSION, "state": safe_json.encode(dict(state), arrays)}
    members = {DOCUMENT: _dump(document)} | write_arrays(arrays)
    _write_archive(path, members, compressed)


def read_state(path: File) -> dict[str, Any]:
    """What `write_state` wrote.

    Raises:
        FileNotFoundError: no such file.
        ModelFileError: damaged, foreign, or of another version.
    """
    with _readable(path) as (file, name):
        try:
            members, arrays = read_members(file, MOST_STATE_BYTES)
            document = json.loads(members[DOCUMENT])
            if document["format"] != FORMAT or document["version"] != FORMAT_VERSION:
                raise ModelFileError(f"{name} is of another format or version than {FORMAT} {FORMAT_VERSION}")
            state = safe_json.decode(document["state"], arrays)
        except ModelFileError:
            raise
        except UNREADABLE as error:
            raise ModelFileError(f"{name} is damaged, or no state of a distillation: {error}") from error
    if not isinstance(state, dict):
        raise ModelFileError(f"{name} is damaged: it holds no table")
    return state
