"""The `rao` command: one program for training, scoring, comparing, measuring and playing."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Sequence
from typing import Any

EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130
NEEDS = 'the rao command needs more packages ({error}). Install them with: pip install "rao-envs[baselines]"'
EPILOG = "Exit codes: 0 done, 1 the work failed, 2 something in the command is wrong, 130 stopped after saving."


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code.

    Args:
        arguments: those after the program's name; None takes the process's own.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        # Pictures are drawn with signs that an old code page lacks (Windows, where output goes to a file or pipe): a question mark
        # is better than no output at all.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        app = make_app()
    except ImportError as error:
        if arguments[:1] == ["verify"]:  # needs the environments alone
            from rao_leaderboard.__main__ import main as plain

            raise SystemExit(plain(arguments)) from None
        sys.stderr.write(NEEDS.format(error=error) + "\n")
        raise SystemExit(EXIT_FAILED) from None
    from rao_baselines.errors import StoppedError, UserError

    try:
        app(args=arguments, prog_name="rao")
    except UserError as error:
        _fail(str(error), "error", "--json" in arguments)
        raise SystemExit(EXIT_USAGE) from None
    except (StoppedError, KeyboardInterrupt) as stop:
        _fail(str(stop) or "stopped", "stopped", "--json" in arguments)
        raise SystemExit(EXIT_INTERRUPTED) from None
    except OSError as error:  # a full disk, a folder that went away: for people, not for a traceback
        _fail(str(error), "error", "--json" in arguments)
        raise SystemExit(EXIT_FAILED) from None
    except ImportError as error:
        # A command's own needs, which `--help` can do without.
        if (error.name or "").startswith(("rao_baselines", "rao_agents", "rao_envs")):  # a slip of ours, which no package repairs
            raise
        _fail(NEEDS.format(error=error), "error", "--json" in arguments)
        raise SystemExit(EXIT_FAILED) from None


def make_app() -> Any:
    """The typer application with all commands.

    Raises:
        ImportError: typer or rich is missing.
    """
    import rich  # noqa: F401 - said here, before a command is half done
    import typer

    from rao_baselines.commands import (
        bench,
        compare,
        demo,
        distill_report,
        doctor,
        evaluate,
        leaderboard,
        listing,
        play,
        plot,
        solve,
        submit,
        train,
        tune,
        verify,
    )

    app = typer.Typer(
        name="rao",
        help="Train, score, compare and play recursive agents and their monolithic twins.",
        epilog=EPILOG,
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    for module in (listing, demo, play, solve, train, evaluate, compare, plot, tune, distill_report, submit, verify, doctor):
        app.command(module.NAME, epilog=EPILOG)(module.command)
    app.add_typer(bench.app, name="bench")
    app.add_typer(leaderboard.app, name=leaderboard.NAME)
    return app


def _fail(message: str, kind: str, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps({kind: message}) + "\n")
    from rich.console import Console
    from rich.text import Text

    Console(stderr=True, highlight=False).print(
        Text.assemble((f"{kind}: ", "bold red" if kind == "error" else "bold"), message), soft_wrap=True
    )


if __name__ == "__main__":
    main()
