"""Prove that a built wheel is complete and works alone: `python .ci/check_wheel.py dist/rao_envs-*.whl`.

Looks into the file, then installs it without extras in a fresh virtual environment and uses it from an empty
folder, where nothing of the source tree can be imported by accident. Standard library only. Exits with 1 and
a reason if something is wrong.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import venv
import zipfile
from pathlib import Path

ROOTS = ("rao_envs", "rao_agents", "rao_baselines", "rao_leaderboard")
SUBMISSION = Path(__file__).resolve().parents[1] / "leaderboard" / "submissions" / "random"
FORBIDDEN = ("torch", "stable_baselines3", "sb3_contrib", "pygame", "typer", "matplotlib")

# Runs inside the fresh environment, which has the benchmark's three dependencies and no more.
USE = f"""
import importlib.metadata, importlib.util, pathlib, sys, time

present = [name for name in {FORBIDDEN!r} if importlib.util.find_spec(name)]
assert not present, f"the base installation brought {{present}}"

started = time.perf_counter()
import rao_envs
imported = time.perf_counter() - started
assert pathlib.Path(rao_envs.__file__).is_relative_to(sys.prefix), rao_envs.__file__
version = importlib.metadata.version("rao-envs")
assert getattr(rao_envs, "__version__", version) == version, (rao_envs.__version__, version)

import gymnasium as gym
env = gym.make("RAO/Maze-20x20")
observation, info = env.reset(seed=0)
first = time.perf_counter() - started
for _ in range(1000):
    action = env.action_space.sample(observation["action_mask"])
    observation, reward, terminated, truncated, info = env.step(action)
    if terminated or truncated:
        observation, info = env.reset()
assert env.observation_space.contains(observation)
env.close()

from rao_leaderboard.verify import verify
report = verify({str(SUBMISSION)!r})
assert report.ok, report.problems
leaked = [name for name in sys.modules if name.partition(".")[0] in {FORBIDDEN!r}]
assert not leaked, leaked
print(f"import rao_envs {{imported:.2f}} s, first reset {{first:.1f}} s, 1000 steps and a submission verified, without torch: ok")
"""


def check_contents(wheel: Path) -> None:
    """Raise SystemExit unless the archive holds four typed packages, the configurations and no rubbish."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    wanted = [f"{root}/{name}" for root in ROOTS for name in ("__init__.py", "py.typed")]
    wanted += ["rao_leaderboard/golden.json", "rao_leaderboard/site/assets/index.html.j2"]
    missing = [name for name in wanted if name not in names]
    # What `rao solve` and `rao evaluate` offer by name must be there for people who have no source tree.
    missing += [
        name for name in ("rao_baselines/trained/recursive_ppo.zip", "rao_baselines/trained/recursive_ppo.json") if name not in names
    ]
    if not any(name.startswith("rao_baselines/configs/") and name.endswith((".yml", ".yaml")) for name in names):
        missing.append("rao_baselines/configs/*.yml")
    if missing:
        sys.exit(f"{wheel.name} lacks {', '.join(missing)}")
    roots = {name.split("/")[0] for name in names} - {f"{'-'.join(wheel.name.split('-')[:2])}.dist-info"}
    if roots != set(ROOTS):
        sys.exit(f"{wheel.name} holds {sorted(roots)}, expected {sorted(ROOTS)}")
    rubbish = [name for name in names if "__pycache__" in name or name.endswith((".pyc", ".nbi", ".nbc"))]
    if rubbish:
        sys.exit(f"{wheel.name} holds {', '.join(rubbish)}")


def run(*command: str | Path, cwd: str) -> subprocess.CompletedProcess[str]:
    """Run `command` in `cwd` with nothing of the caller's Python settings; capture what it prints."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    return subprocess.run([*map(str, command)], cwd=cwd, env=environment, text=True, capture_output=True)


def check_alone(wheel: Path) -> None:
    """Raise SystemExit unless the wheel, installed with nothing but what it requires, runs an episode."""
    constraints = Path(__file__).resolve().parents[1] / "constraints.txt"
    with tempfile.TemporaryDirectory() as folder:
        venv.create(Path(folder, "venv"), with_pip=True)
        binaries = Path(folder, "venv", "Scripts" if os.name == "nt" else "bin")
        empty = Path(folder, "empty")
        empty.mkdir()
        for command in (
            (binaries / "python", "-m", "pip", "install", "--quiet", "-c", constraints, wheel.resolve()),
            (binaries / "python", "-c", USE),
        ):
            result = run(*command, cwd=str(empty))
            print(result.stdout, end="")
            if result.returncode:
                sys.exit(f"{wheel.name} does not work alone:\n{result.stderr}")
        # What the command needs is an extra. Without it: one line that names the extra, and no traceback.
        result = run(binaries / "rao", "list", cwd=str(empty))
        said = result.stderr
        if result.returncode == 0 or "Traceback" in said or "rao-envs[baselines]" not in said:
            sys.exit(f"`rao` without its extra should say: pip install 'rao-envs[baselines]'. It said:\n{said}")


def main() -> None:
    """Check the wheel named on the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("wheel", type=Path)
    wheel: Path = parser.parse_args().wheel
    started = time.perf_counter()
    check_contents(wheel)
    check_alone(wheel)
    print(f"{wheel.name}: complete, and works alone ({time.perf_counter() - started:.0f} s)")


if __name__ == "__main__":
    main()
