"""Random numbers from state that lives in arrays: one independent stream per instance, none shared, none global.

SplitMix64 (Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators"): 64 bits of state, passes BigCrush, and
a new stream is one hash away. The same integers on every platform.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rao_envs.core.jit import inline

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
MIX_2 = np.uint64(0x94D049BB133111EB)
U30, U27, U31, U32, U11 = (np.uint64(bits) for bits in (30, 27, 31, 32, 11))


@inline
def mix(value: np.uint64) -> np.uint64:
    """SplitMix64's finaliser: a bijection of 64-bit integers in which every input bit moves half of the output bits."""
    value = (value ^ (value >> U30)) * MIX_1
    value = (value ^ (value >> U27)) * MIX_2
    return value ^ (value >> U31)


@inline
def next_u64(state: npt.NDArray[np.uint64]) -> np.uint64:
    """Next 64 random bits; `state` (uint64, shape (1,)) advances in place."""
    state[0] += GOLDEN
    return mix(state[0])


@inline
def below(state: npt.NDArray[np.uint64], n: int) -> int:
    """An integer in [0, n), 1 <= n < 2**32 (multiply-shift: the bias is below n / 2**32)."""
    # np.int64, not int: Numba keeps int() of an unsigned number unsigned.
    return np.int64(((next_u64(state) >> U32) * np.uint64(n)) >> U32)  # type: ignore[return-value]


@inline
def uniform(state: npt.NDArray[np.uint64]) -> float:
    """A float64 in [0, 1) with 53 random bits."""
    return np.float64(next_u64(state) >> U11) * (1.0 / 9007199254740992.0)
