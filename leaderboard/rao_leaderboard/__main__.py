"""`python -m rao_leaderboard verify PATH...`, `... build`: with nothing installed but `rao_envs`, and for `build` the extra "site"."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from rao_leaderboard.verify import Report, verify


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code: 0 if everything holds, 1 if not, 2 for a wrong command."""
    parser = argparse.ArgumentParser(prog="python -m rao_leaderboard", description="Check submissions to the RAO-envs leaderboard.")
    commands = parser.add_subparsers(dest="command", required=True)
    check = commands.add_parser(
        "verify",
        help="replay every episode of submissions and recompute every number",
        description="Recompute the seeds, replay every action, recompute every number. Nothing in a submission is unpickled or executed.",
    )
    check.add_argument("paths", nargs="+", metavar="PATH", help="folder of a submission")
    check.add_argument("--rerun", action="store_true", help="also let the ONNX policies act, and compare (needs onnxruntime)")
    check.add_argument("--json", action="store_true", help="machine-readable output")
    make = commands.add_parser(
        "build", help="write the leaderboard as a static site", description="Write the leaderboard as a static site."
    )
    make.add_argument("--submissions", default="leaderboard/submissions", metavar="PATH", help="folder of submissions (%(default)s)")
    make.add_argument("--out", default="site", metavar="PATH", help="folder to write (%(default)s)")
    make.add_argument("--no-episodes", action="store_true", help="record no episodes to be watched")
    options = parser.parse_args(arguments)
    try:
        if options.command == "build":
            from rao_leaderboard.site import build

            sys.stdout.write(f"wrote {build(options.submissions, options.out, episodes=not options.no_episodes)}\n")
            return 0
        reports = [verify(path, rerun=options.rerun) for path in options.paths]
    except (ImportError, ValueError, OSError) as error:
        parser.exit(2, f"error: {error}\n")
    if options.json:
        sys.stdout.write(json.dumps([report.as_dict() for report in reports], indent=1) + "\n")
    else:
        sys.stdout.write("".join(describe(report) + describe_rows(report) for report in reports))
    return 0 if all(report.ok for report in reports) else 1


def describe(report: Report) -> str:
    """A report in words."""
    if not report.ok:
        lines = "".join(f"  {problem}\n" for problem in report.problems)
        return f"{report.name}: does not hold\n{lines}"
    count = 0 if report.submission is None else len(report.submission.runs)
    runs = f", {count} {'run' if count == 1 else 'runs'}"
    rerun = "" if report.rerun is None else f"; re-run {report.rerun} of {count} runs"
    speed = report.steps / max(report.seconds, 1e-9)
    return f"{report.name}: holds ({report.episodes} episodes, {report.steps:,} steps{runs}{rerun}; {speed:,.0f} steps/s)\n"


def describe_rows(report: Report) -> str:
    """The rows that a submission would get, one line each; nothing if it does not hold."""
    lines = []
    for table in report.rows:
        for row in table.rows:
            score = f"success {row.success.value:.3f} [{row.success.low:.3f}, {row.success.high:.3f}]"
            ranked = "" if row.ranked else ", shown without a rank: too few runs"
            lines.append(f"  {table.track}, {table.env_id}: {score}, {row.steps:.1f} steps{ranked}\n")
    return "".join(lines)


if __name__ == "__main__":
    sys.exit(main())
