"""Torch's own random numbers from a seed for a while, whatever the device, with the training's generators left as they were."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch as th


@contextmanager
def torch_seeded(seed: int, device: th.device | str = "cpu") -> Iterator[None]:
    """Within it, random numbers on the CPU and on `device` come from `seed`; outside, they are as if nothing had been drawn.

    `torch.manual_seed` would seed every GPU, and a fork of the CPU's generator alone would not put those back.
    """
    place = th.device(device)
    index: int | None = place.index
    cuda = [th.cuda.current_device() if index is None else index] if place.type == "cuda" else []
    with th.random.fork_rng(devices=cuda):
        th.default_generator.manual_seed(seed)
        for number in cuda:
            with th.cuda.device(number):
                th.cuda.manual_seed(seed)
        yield
