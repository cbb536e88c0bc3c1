"""`rao submit`: run the leaderboard's protocol and write a submission."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from rao_baselines import ui
from rao_baselines.config import parse_assignments
from rao_baselines.errors import StoppedError, UserError

NAME = "submit"


def command(
    agents: Annotated[
        list[str],
        typer.Argument(
            metavar="AGENT...",
            help="What acts, one for each training run: a run's folder, a model file, a name in baselines/models; module:function; "
            "process:COMMAND; random or solver.",
            show_default=False,
        ),
    ],
    name: Annotated[str, typer.Option(help="Of the submission and its folder: small letters, digits, hyphens.", show_default=False)],
    author: Annotated[list[str], typer.Option(help="Who made it; may be given often.", show_default=False)],
    track: Annotated[
        list[str] | None, typer.Option(help="standard, zero-shot or open; may be given often.", show_default="standard, zero-shot")
    ] = None,
    task: Annotated[
        list[str] | None, typer.Option(help="Only these ids; for the open track, which ones.", show_default="all that fit")
    ] = None,
    family: Annotated[
        list[str] | None,
        typer.Option(help="Maze, Algebra, LongSeq, Nested or Dialogue; may be given often.", show_default="all that fit"),
    ] = None,
    repeat: Annotated[int, typer.Option(help="Runs of each agent that was not trained; each has other episodes.")] = 1,
    sampled: Annotated[bool, typer.Option("--sampled/--greedy", help="How a policy acts.")] = False,
    onnx: Annotated[bool, typer.Option("--onnx", help="Submit policies as ONNX: others can run them again (second badge).")] = False,
    artefact: Annotated[
        list[Path] | None,
        typer.Option(help="A file of the policy, which is published; may be given often.", show_default=False),
    ] = None,
    assignments: Annotated[
        list[str] | None, typer.Option("--env-arg", "-e", metavar="KEY=VALUE", help="spawn=false or observe_frame=true.")
    ] = None,
    agent_name: Annotated[str | None, typer.Option(help="What tables call it.", show_default="--name")] = None,
    trained_on: Annotated[
        list[str] | None, typer.Option(help="What every run was trained on; may be given often.", show_default="what rao train says")
    ] = None,
    training_steps: Annotated[
        int | None, typer.Option(help="Environment steps of every run's training.", show_default="what the model says", min=0)
    ] = None,
    algorithm: Annotated[str | None, typer.Option(help="How it was made, in a few words.", show_default="--agent-name")] = None,
    description: Annotated[str, typer.Option(help="Whatever else should be known.", show_default=False)] = "",
    full_context: Annotated[
        bool,
        typer.Option(
            "--full-context",
            help="It keeps more than one frame's window.",
        ),
    ] = False,
    code_url: Annotated[
        str | None, typer.Option(help="Where its code is (https).", show_default="this repository's origin, where it is one")
    ] = None,
    commit: Annotated[str | None, typer.Option(help="Of that code.", show_default="this repository's HEAD")] = None,
    timeout: Annotated[float, typer.Option(help="Seconds a program has for an answer.")] = 60.0,
    out: Annotated[Path, typer.Option(help="Folder the submission's folder is put into.")] = Path("leaderboard/submissions"),
    work: Annotated[Path | None, typer.Option(help="What is finished is kept here until all is.", show_default="runs/submit/NAME")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Run the leaderboard's protocol for an agent, and write a submission that `rao verify` can check.

    [bold]Examples[/bold]

      rao submit runs/Maze-20x20-v0/recursive_ppo/* --name my-agent --author "A. Name" --onnx

      rao submit my_module:act --name my-agent --author "A. Name" --track open --task RAO/Maze-10x10-v0 --repeat 5

      rao submit "process:python agent.py" --artefact agent.py --name my-agent --author "A. Name" --task RAO/Maze-20x20-v0

      rao submit random --family Maze --name chance --author "A. Name" --repeat 5

    Which episodes are played follows from the policy's files (of a program also its command, of a function its name): see
    leaderboard/PROTOCOL.md. Ctrl-C keeps the tasks that are finished; the same command goes on. The folder is written when everything
    is there and holds, and not before.
    """
    from rao_baselines.pool import stop_requests
    from rao_baselines.submitting import playing, sources, writing
    from rao_leaderboard.protocol import TRACKS, Task

    tracks = track or ["standard", "zero-shot"]
    for chosen in tracks:
        if chosen not in TRACKS:
            raise UserError(f"there is no track {chosen!r}: {', '.join(TRACKS)}")
    if "open" in tracks and not task:
        raise UserError("the open track has every registered id: say with --task which ones")
    if repeat < 1 or not 0 < timeout < float("inf"):
        raise UserError("--repeat must be at least 1, and --timeout a positive number of seconds")
    words = _words(name, agent_name, tuple(author), code_url, commit, algorithm, description, full_context)
    if name and (out / name).exists():
        raise UserError(f"{out / name} is there already: delete it, or take another --name")
    options = sources.check_options(parse_assignments(assignments or []))
    runs = [
        sources.make_source(text, f"run-{k * repeat + n}", artefact or [], options, timeout, n if repeat > 1 else None, onnx)
        for k, text in enumerate(agents)
        for n in range(repeat)
    ]
    for run in runs:
        run.trained_on = tuple(trained_on) if trained_on else run.trained_on
        run.training_steps = run.training_steps if training_steps is None else training_steps
    tasks = {run.name: playing.choose_tasks(run, tracks, task or [], family or []) for run in runs}
    writing.check(words, runs, tasks, deterministic=not sampled)
    kept = work or Path("runs/submit") / name
    played = []
    with ui.progress_bars(not as_json) as bars, stop_requests() as asked:
        total = sum(map(len, tasks.values()))
        board = bars.add_task("tasks", total=total, note="comparing the environments with the leaderboard's")
        playing.check_environments(sorted({entry.env_id for found in tasks.values() for entry in found}))
        current: dict[str, Any] = {}

        def on_task(run: sources.Source, entry: Task) -> playing.Report:
            current["bar"] = bars.add_task(f"{run.name}, {entry.env_id}", total=None, note="")
            bars.update(board, note=f"{run.name}: {entry.track}, {entry.env_id}")

            def report(finished: int, all_of_them: int) -> None:
                bars.update(current["bar"], completed=finished, total=all_of_them)

            return report

        try:
            for entry in playing.play_all(runs, tasks, deterministic=not sampled, kept=kept, on_task=on_task, should_stop=asked):
                played.append(entry)
                bars.remove_task(current["bar"])
                bars.advance(board)
        except StoppedError:
            raise StoppedError(f"stopped; {len(played)} of {total} tasks are kept in {kept}. The same command goes on") from None
    submission, files = writing.submission_of(words, played, deterministic=not sampled)
    with ui.progress_bars(not as_json) as bars:
        board = bars.add_task("verifying", total=None, note="acting and replaying" if onnx else "replaying")
        path, report = writing.put_in_place(
            out, submission, files, rerun=onnx, progress=lambda done, total: bars.update(board, completed=done, total=total)
        )
    _show(path, submission, report, as_json)
    if not report.ok:
        raise typer.Exit(1)


def _words(
    name: str,
    agent_name: str | None,
    authors: tuple[str, ...],
    code_url: str | None,
    commit: str | None,
    algorithm: str | None,
    description: str,
    full_context: bool,
) -> Any:
    from rao_baselines.submitting import writing

    url, revision = code_url or writing.default_url(), commit or writing.default_commit()
    if revision is None:
        raise UserError("say with --commit which commit of the agent's code was used; this folder is in no git repository")
    if commit is None and writing.uncommitted():
        ui.say("remark: this repository has changes that its commit, which the submission names, does not have")
    agent = agent_name or name
    return writing.Words(
        name=name,
        agent=agent,
        authors=authors,
        code_url=url,
        commit=revision,
        algorithm=algorithm or agent,
        description=description,
        full_context=full_context,
    )


def _show(path: Path, submission: Any, report: Any, as_json: bool) -> None:
    """Where it was put, whether it holds, and the rows that it gets."""
    from rao_leaderboard.__main__ import describe
    from rao_leaderboard.ranking import tables

    rows = [
        (
            table.track,
            table.env_id,
            f"{row.success.value:.3f} [{row.success.low:.3f}, {row.success.high:.3f}]",
            str(row.success.n),
            f"{row.steps:.1f}",
            f"{row.critical_path:.1f}",
            "ranked" if row.ranked else "shown without a rank: too few runs",
        )
        for table in tables([submission])
        for row in table.rows
    ]
    if as_json:
        ui.print_json({"path": str(path) if report.ok else None, "verified": report.as_dict(), "rows": [list(row) for row in rows]})
        return
    if not report.ok:
        ui.err().print(describe(report), end="", markup=False, soft_wrap=True)
        ui.say(f"{path} was not written: what was played does not hold")
        return
    ui.print_table("", ("track", "table", "success", "runs", "steps", "critical path", ""), rows, text=("table", ""))
    ui.out().print(describe(report), end="", markup=False, highlight=False, soft_wrap=True)
    ui.say(f"wrote {path}: commit the folder and open a pull request (leaderboard/README.md)")
