"""What the commands share on screen: tables and machine-readable output on stdout, progress and remarks on stderr."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from rao_baselines.errors import UserError

RayOption = Annotated[bool, typer.Option("--ray", help="On a Ray cluster: that of --address, or one started on this machine.")]
AddressOption = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="Of a running Ray cluster: auto, or host:port.", show_default=False)
]


def check_ray(wanted: bool, address: str | None, option: str = "--ray") -> None:
    """Look before the work at what it needs.

    Raises:
        UserError: Ray is not installed, or there is an address and nothing to do there.
    """
    if not wanted:
        if address is not None:
            raise UserError(f"--address says where a Ray cluster is; pass {option}, too, to use it")
        return
    from rao_agents.distributed.cluster import RayNotInstalledError, import_ray

    try:
        import_ray()
    except RayNotInstalledError as error:
        raise UserError(str(error)) from error


def out() -> Console:
    """The console for results."""
    return Console(highlight=False)


def err() -> Console:
    """The console for everything else."""
    return Console(stderr=True, highlight=False)


def say(text: str) -> None:
    """A remark."""
    err().print(text, soft_wrap=True)


def print_json(value: Any) -> None:
    """A result for programs."""
    sys.stdout.write(json.dumps(value, indent=1) + "\n")


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], text: Sequence[str] = ()) -> None:
    """A table; the first column and those named in `text` are left-aligned, all others right-aligned. A pipe gets all of it."""
    console = out()
    if not console.is_terminal:
        console = Console(highlight=False, width=200)
    if title:
        console.print(title, style="italic", soft_wrap=True)
    table = Table(header_style="bold", box=None, pad_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 or column in text else "right", no_wrap=index == 0)
    for row in rows:
        table.add_row(*row)
    console.print(table)


def plain_cell(cell: str) -> str:
    """A cell of a Markdown table as a terminal shows it."""
    return re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", cell).replace("**", "")


def share(value: float | None, digits: int = 3) -> str:
    """A rate in [0, 1], or a dash."""
    return "-" if value is None else f"{value:.{digits}f}"


def interval(value: Mapping[str, Any] | None, digits: int = 3) -> str:
    """A value with its interval: "0.970 [0.951, 0.982]"."""
    if value is None:
        return "-"
    middle = value.get("value", value.get("mean"))
    if middle is None:
        return "-"
    text = f"{middle:.{digits}f}"
    if value.get("low") is None or value.get("high") is None or value.get("n") == 1:
        return text
    return f"{text} [{value['low']:.{digits}f}, {value['high']:.{digits}f}]"


def thousands(steps: float | None) -> str:
    """Steps in thousands, or a dash."""
    return "-" if steps is None else f"{steps / 1000:,.0f} k" if steps >= 10_000 else f"{steps / 1000:,.1f} k"


def seconds(value: float) -> str:
    """A duration."""
    if value < 1e-3:
        return f"{value * 1e6:.0f} us"
    if value < 1:
        return f"{value * 1e3:.0f} ms"
    return f"{value:.1f} s" if value < 120 else f"{value / 60:.1f} min"


@contextmanager
def progress_bars(enabled: bool = True) -> Iterator[Progress]:
    """Bars that each show a description, how far it is and a remark (the field `note`)."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=err(), disable=not enabled, refresh_per_second=4) as bars:
        yield bars


def point_note(point: Mapping[str, Any] | None) -> str:
    """The latest scores of a run, for its bar."""
    if point is None:
        return ""
    key = "success" if point["sampled"]["success"] is not None else "return"
    return f"{key}: sampled {point['sampled'][key]:.2f}, greedy {point['greedy'][key]:.2f}"
