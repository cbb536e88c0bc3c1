"""`rao leaderboard`: the tables of all submissions, in the terminal and as a site."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from rao_baselines import ui
from rao_baselines.errors import UserError

NAME = "leaderboard"
app = typer.Typer(rich_markup_mode="rich", no_args_is_help=True, help="The leaderboard's tables, in the terminal and as a site.")
SubmissionsOption = Annotated[Path, typer.Option(help="Folder of submissions.")]
DEFAULT = Path("leaderboard/submissions")


@app.command("show")
def show(
    submissions: SubmissionsOption = DEFAULT,
    track: Annotated[str | None, typer.Option(help="Only this track.", show_default=False)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Print the tables: a pure function of the submissions, which `rao verify` checks.

    [bold]Example[/bold]

      rao leaderboard show --track standard
    """
    from rao_leaderboard.protocol import TRACKS
    from rao_leaderboard.ranking import tables

    if track is not None and track not in TRACKS:
        raise UserError(f"there is no track {track!r}: {', '.join(TRACKS)}")
    entries = {entry.submission.name: entry.submission for entry in _read(submissions)}
    found = [table for table in tables(entries.values()) if track in (None, table.track)]
    if as_json:
        rows = [{"track": t.track, "table": t.env_id, **row._asdict(), "success": row.success._asdict()} for t in found for row in t.rows]
        ui.print_json(rows)
        return
    for table in found:
        lines = [
            (
                "-" if row.rank is None else str(row.rank),
                entries[row.submission].agent.name,
                entries[row.submission].agent.kind,
                f"{row.success.value:.3f} [{row.success.low:.3f}, {row.success.high:.3f}]",
                f"{row.steps:.1f}",
                f"{row.critical_path:.1f}",
                ui.thousands(row.training_steps),
                str(row.success.n),
            )
            for row in table.rows
        ]
        title = f"{table.track}: {'all tasks together' if table.env_id == 'all' else table.env_id}"
        columns = ("rank", "agent", "kind", "success [95 %]", "steps", "critical path", "training steps", "runs")
        ui.print_table(title, columns, lines, text=("agent", "kind"))
        ui.out().print()
    if not found:
        ui.say(f"there are no submissions in {submissions}")


@app.command("build")
def build(
    submissions: SubmissionsOption = DEFAULT,
    out: Annotated[Path, typer.Option(help="Folder to write.")] = Path("site"),
    episodes: Annotated[bool, typer.Option("--episodes/--no-episodes", help="Also record episodes to be watched (minutes).")] = True,
    rerun: Annotated[bool, typer.Option("--rerun", help="Let ONNX policies act again, for their second badge (minutes).")] = False,
) -> None:
    """Write the leaderboard as a static site: open its index.html, no server needed.

    [bold]Example[/bold]

      rao leaderboard build --out site
    """
    from rao_leaderboard.reading import BrokenSubmissionError
    from rao_leaderboard.site import build as write

    with ui.progress_bars() as bars:
        task = bars.add_task("verifying, then recording episodes", total=None, note="")

        def progress(finished: int, total: int) -> None:
            bars.update(task, completed=finished, total=total)

        try:
            path = write(submissions, out, episodes=episodes, rerun=rerun, progress=progress)
        except (BrokenSubmissionError, FileExistsError, FileNotFoundError, ImportError) as error:
            raise UserError(str(error)) from error
    ui.say(f"wrote {path}")


def _read(folder: Path) -> list[Any]:
    from rao_leaderboard.reading import BrokenSubmissionError, read_submission

    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}")
    try:
        return [read_submission(path) for path in sorted(folder.iterdir()) if path.is_dir() and not path.name.startswith(".")]
    except BrokenSubmissionError as error:
        raise UserError(f"a submission is broken; see rao verify: {error}") from error
