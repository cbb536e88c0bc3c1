"""Settings shared by all tests: no display, one thread per process, and Hypothesis without deadlines."""

from __future__ import annotations

import os
import sys

# Before NumPy, torch or pygame are imported: they read these once. One thread per process, because the tests
# already run in one process per core, and because one thread adds floating-point numbers in one order.
os.environ["SDL_VIDEODRIVER"] = "dummy"
os.environ["SDL_AUDIODRIVER"] = "dummy"
os.environ["MPLBACKEND"] = "Agg"
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"

from hypothesis import settings

# The first example of a test may have to compile kernels, which says nothing about the test: no deadlines.
settings.register_profile("dev", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))


def pytest_collection_finish() -> None:
    """Hold torch to one thread where a collected module has imported it; elsewhere OMP_NUM_THREADS does.

    Not imported here: the tests of `rao_envs` must also run, and start quickly, without torch.
    """
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)
