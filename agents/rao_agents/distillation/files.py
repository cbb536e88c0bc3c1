"""State files: plain values and arrays in a zip that runs no code when it is read."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from rao_agents import safe_json
from rao_agents.checkpoint import File, ModelFileError, _dump, _readable, _write_archive

FORMAT, FORMAT_VERSION = "rao-distillation", 1
DOCUMENT, ARRAYS = "state.json", "arrays/"


def write_state(path: File, state: Mapping[str, Any]) -> None:
    """Write `state` (plain values, arrays and tensors) atomically; ".zip" is added where the path has no suffix.

    Raises:
        TypeError: a value that cannot be written.
    """
    arrays: safe_json.Arrays = {}
    document = {"format": FORMAT, "version": FORMAT_VERSION, "state": safe_json.encode(dict(state), arrays)}
    members = {DOCUMENT: _dump(document)}
    for name, array in arrays.items():
        file = io.BytesIO()
        np.save(file, array, allow_pickle=False)
        members[f"{ARRAYS}{name}.npy"] = file.getvalue()
    _write_archive(path, members)


def read_state(path: File) -> dict[str, Any]:
    """What `write_state` wrote.

    Raises:
        FileNotFoundError: no such file.
        ModelFileError: damaged, foreign, or of another version.
    """
    with _readable(path) as (file, name):
        try:
            with zipfile.ZipFile(file) as archive:
                members = {entry: archive.read(entry) for entry in archive.namelist()}
            document = json.loads(members[DOCUMENT])
            if document["format"] != FORMAT or document["version"] != FORMAT_VERSION:
                raise ModelFileError(f"{name} is of another format or version than {FORMAT} {FORMAT_VERSION}")
            arrays = {
                entry.removeprefix(ARRAYS).removesuffix(".npy"): np.load(io.BytesIO(content), allow_pickle=False)
                for entry, content in members.items()
                if entry.startswith(ARRAYS)
            }
            state = safe_json.decode(document["state"], arrays)
        except ModelFileError:
            raise
        except (zipfile.BadZipFile, KeyError, TypeError, ValueError, EOFError, OSError) as error:
            raise ModelFileError(f"{name} is damaged, or no state of a distillation: {error}") from error
    if not isinstance(state, dict):
        raise ModelFileError(f"{name} is damaged: it holds no table")
    return state
