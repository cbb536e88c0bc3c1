"""Traces: the episodes of one run on one task, every action included, as a compressed `rao_envs.Evaluation`."""

from __future__ import annotations

import gzip
import json
import zlib

from rao_envs import Evaluation
from rao_envs.core.episodes import parse_json

SUFFIX = ".json.gz"
MAX_BYTES = 16 * 2**20
"""Of a trace once unpacked: a hundred episodes that use up the largest budget of any environment take less than half of it."""

NESTING = "it is nested too deeply"


def pack(evaluation: Evaluation) -> bytes:
    """The compressed file; the same evaluation always gives the same bytes."""
    text = json.dumps(evaluation.to_dict(), separators=(",", ":"), allow_nan=False)
    return gzip.compress(text.encode(), compresslevel=9, mtime=0)


def unpack(content: bytes) -> Evaluation:
    """The evaluation in a compressed file.

    Raises:
        ValueError: it is none, or unpacks to more than MAX_BYTES, or says something that cannot be.
    """
    return parse(inflate(content))


def inflate(content: bytes, limit: int = MAX_BYTES) -> bytes:
    """What one gzip member, and nothing after it, unpacks to.

    Raises:
        ValueError: it is not that, or more than `limit` bytes; no more than these are unpacked.
    """
    unpacker = zlib.decompressobj(wbits=31)
    try:
        text = unpacker.decompress(content, limit + 1)
    except zlib.error as error:
        raise ValueError(f"it is not compressed by gzip, or damaged ({error})") from None
    if len(text) > limit:
        raise ValueError(f"it unpacks to more than {limit} bytes")
    if not unpacker.eof:
        raise ValueError("it is cut short")
    if unpacker.unused_data:
        raise ValueError("something follows its end")
    return text


def parse(text: bytes) -> Evaluation:
    """The evaluation in a file that was unpacked; raises ValueError if it is none."""
    try:
        return Evaluation.from_dict(parse_json(text))
    except RecursionError:  # while a message was made of it
        raise ValueError(NESTING) from None
