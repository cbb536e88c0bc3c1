"""`rao submit`: whatever acts becomes a submission that holds, whole or not at all."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rao_agents import RecursivePPO, make_vec_env, save_safely
from rao_baselines.submitting import playing, sources
from rao_leaderboard.protocol import EPISODES
from rao_leaderboard.verify import verify

Rao = Callable[..., Any]

ROOT = Path(__file__).resolve().parents[2]
WORDS = ["--author", "A. Tester", "--code-url", "https://example.org/code", "--commit", "0123abc"]
OPEN = ["--track", "open", "--task", "RAO/Maze-5x5-v0"]
AGENT = """
import numpy as np
def act(observation, mask, state, rng):
    return int(rng.choice(np.flatnonzero(mask)))
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def manifest(path: Path) -> dict:  # type: ignore[type-arg]
    return json.loads((path / "submission.json").read_text())  # type: ignore[no-any-return]


def test_a_function(rao: Rao, here: Path) -> None:
    (here / "my_agent_module.py").write_text(AGENT)
    made = rao("submit", "my_agent_module:act", "--name", "mine", "--repeat", "2", *WORDS, *OPEN, "--out", "subs", "--json")
    assert made.code == 0, made.err
    assert made.json["verified"]["ok"] and made.json["verified"]["episodes"] == 2 * EPISODES
    written = manifest(here / "subs" / "mine")
    assert [run["name"] for run in written["runs"]] == ["run-0", "run-1"]
    assert written["agent"]["interface"] == "callable" and written["agent"]["kind"] == "recursive"
    digests = {tuple(file["sha256"] for file in run["artefact"]["files"]) for run in written["runs"]}
    assert len(digests) == 2
    assert (here / "subs/mine/policies/run-0/my_agent_module.py").read_text() == AGENT
    again = rao("submit", "my_agent_module:act", "--name", "mine", *WORDS, *OPEN, "--out", "subs")
    assert again.code == 2 and "is there already" in again.err


@pytest.mark.parametrize("onnx", [False, True])
def test_a_trained_model(rao: Rao, here: Path, onnx: bool) -> None:
    env = make_vec_env("RAO/Maze-5x5-v0", 4, 0)
    model = RecursivePPO("MultiInputPolicy", env, n_steps=16, batch_size=32, policy_kwargs={"net_arch": [16]}, seed=0, device="cpu").learn(
        64
    )
    save_safely(model, here / "model.zip")
    made = rao(
        "submit", "model.zip", "--name", "model", *WORDS, *OPEN, "--out", "subs", "--json", *(["--onnx", "--sampled"] if onnx else [])
    )
    assert made.code == 0, made.err
    assert made.json["verified"]["rerun"] == (1 if onnx else None)
    (run,) = manifest(here / "subs" / "model")["runs"]
    assert run["deterministic"] is not onnx
    assert run["artefact"]["onnx"] == ("policies/run-0/policy.onnx" if onnx else None)


def test_what_rao_train_knows_of_a_run_goes_with_it(rao: Rao, here: Path) -> None:
    assert rao("train", "maskable_ppo", "RAO/Maze-5x5-v0", "--steps", "2048", "--out", "run", "--json").code == 0
    made = rao("submit", "run", "--name", "trained", *WORDS, *OPEN, "--out", "subs", "--json")
    assert made.code == 0, made.err
    written = manifest(here / "subs" / "trained")
    (run,) = written["runs"]
    assert (run["training_seed"], run["trained_on"]) == (0, ["RAO/Maze-5x5-v0"])
    assert run["training_steps"] >= 2048 and run["wall_clock"] > 0 and len(run["curve"]) >= 2
    assert written["agent"]["kind"] == "monolithic"
    assert run["results"][0]["env_kwargs"] == {"spawn": False}


def test_a_program(rao: Rao, here: Path) -> None:
    program = ROOT / "examples" / "line_protocol_agent.py"
    command = f"process:{sys.executable} {program}"
    made = rao("submit", command, "--artefact", program, "--name", "lines", *WORDS, *OPEN, "--out", "subs", "--json")
    assert made.code == 0, made.err
    assert manifest(here / "subs" / "lines")["agent"]["interface"] == "process"
    nameless = rao("submit", command, "--name", "nameless", *WORDS, *OPEN, "--out", "subs")
    assert nameless.code == 2 and "--artefact" in nameless.err


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("import time; time.sleep(60)", "did not answer within 1 seconds"),
        ("print('hello')", "must answer with a line of JSON"),
        ("print('[1]')", "must answer with a JSON object"),
        ('print(\'{"type": "actions"}\')', "must answer the first line with"),
        ("raise SystemExit(3)", "ended with exit code 3"),
        (
            "import sys; print('{\"type\": \"ready\"}', flush=True); sys.stdin.readline(); sys.stdin.readline(); print('{}')",
            "must answer with",
        ),
        (
            'import os, sys; print(\'{"type": "ready"}\', flush=True); sys.stdin.readline(); sys.stdin.readline(); os._exit(4)',
            "exit code 4",
        ),
        (
            """
import json, sys
print('{"type": "ready"}', flush=True)
sys.stdin.readline()
n = len(json.loads(sys.stdin.readline())["rows"])
print(json.dumps({"type": "actions", "actions": [99] * n}), flush=True)
sys.stdin.read()
""",
            "chose 99 in step 0 of episode 0; an action is an integer",
        ),
        ('while True: print(\'{"type": "ready"}\', flush=True)', "must answer each line once"),
        ("import sys; sys.stdout.write('x' * 17_000_000); sys.stdout.flush(); sys.stdin.read()", "a line of more than"),
    ],
    ids=["silent", "no JSON", "no object", "not ready", "dies at once", "empty answer", "dies later", "wrong action", "floods", "endless"],
)
def test_programs_that_misbehave(rao: Rao, here: Path, script: str, message: str) -> None:
    (here / "bad.py").write_text(script)
    began = time.monotonic()
    patience = "1" if "sleep" in script else "30"
    made = rao(
        "submit",
        f"process:{sys.executable} bad.py",
        "--artefact",
        "bad.py",
        "--timeout",
        patience,
        "--name",
        "bad",
        *WORDS,
        *OPEN,
        "--out",
        "s",
    )
    assert made.code == 2 and message in made.err
    assert not (here / "s").exists()
    assert time.monotonic() - began < 60


def test_a_program_and_its_children_are_gone_afterwards(here: Path) -> None:
    from rao_baselines.submitting.line_protocol import ProcessAgent

    (here / "parent.py").write_text(
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)'])\n"
        "open('pid', 'w').write(str(child.pid))\n"
        'print(\'{"type": "ready"}\', flush=True)\n'
        "import time; time.sleep(300)\n"
    )
    with ProcessAgent(f"{sys.executable} parent.py", {}, 30.0):
        child = int((here / "pid").read_text())
        os.kill(child, 0)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{child}/stat").read_text().split()[2] == "Z":
                return
            os.kill(child, 0)
        except (ProcessLookupError, FileNotFoundError):
            return
        time.sleep(0.05)
    pytest.fail("the program's child is still there")


def test_stopped_and_gone_on_with(here: Path) -> None:
    """Ctrl-C in the second of two tasks: what was finished is kept, and the submission is that of an uninterrupted run."""
    (here / "slow.py").write_text(
        "import numpy as np, os, pathlib, signal\n"
        "def act(observation, mask, state):\n"
        "    if len(mask) and pathlib.Path('stop').exists() and any(pathlib.Path('runs').rglob('*Maze-5x5*')):\n"
        "        pathlib.Path('stop').unlink()\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "    return int(np.flatnonzero(mask)[-1])\n"
    )
    command = [sys.executable, "-m", "rao_baselines.cli", "submit", "slow:act", "--name", "slow", *WORDS, *OPEN]
    command += ["--task", "RAO/Maze-10x10-v0", "--out"]
    (here / "stop").touch()
    stopped = subprocess.run([*command, "subs"], capture_output=True, text=True, check=False, cwd=here, timeout=200)
    assert stopped.returncode == 130, stopped.stderr
    assert "1 of 2 tasks are kept" in stopped.stderr and "The same command goes on" in stopped.stderr
    assert not (here / "subs").exists()
    for out in ("subs", "whole"):
        done = subprocess.run(
            [*command, out, *([] if out == "subs" else ["--work", "elsewhere"])],
            capture_output=True,
            text=True,
            check=False,
            cwd=here,
            timeout=200,
        )
        assert done.returncode == 0, done.stderr
    first, second = (manifest(here / name / "slow") for name in ("subs", "whole"))
    assert first["runs"] == second["runs"]


def test_what_was_kept_of_another_policy_is_not_used(here: Path) -> None:
    (here / "a.py").write_text(AGENT)
    played = []
    for text in (AGENT, AGENT + "# changed\n"):
        (here / "a.py").write_text(text)
        source = sources.make_source("random", "run-0", [here / "a.py"], {}, 1.0, None, False)
        (task,) = playing.choose_tasks(source, ["open"], ["RAO/Maze-5x5-v0"])
        played.append(playing.play(source, task, deterministic=True, kept=here / "kept", report=lambda *_: None, should_stop=lambda: False))
    assert {e.seed for e in played[0].episodes}.isdisjoint(e.seed for e in played[1].episodes)
    assert len(list((here / "kept").iterdir())) == 2
    stopped = playing.play(source, task, deterministic=True, kept=here / "kept", report=lambda *_: None, should_stop=lambda: True)
    assert stopped == played[1]  # nothing was played
    (kept,) = [file for file in (here / "kept").iterdir() if file.name.startswith(playing.digest_of(source)[:16])]
    kept.write_bytes(kept.read_bytes()[:100])
    again = playing.play(source, task, deterministic=True, kept=here / "kept", report=lambda *_: None, should_stop=lambda: False)
    assert again == played[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["random", "--track", "gold"], "there is no track 'gold'"),
        (["random", "--track", "open"], "say with --task which ones"),
        (["random", "--task", "RAO/Maze-5x5-v0"], "is no task of standard or zero-shot, but these are"),
        (["random", *OPEN, "-e", "budget=1000"], "only observe_frame, spawn=true|false"),
        (["random", *OPEN, "--repeat", "0"], "--repeat must be at least 1"),
        (["nothing_here", *OPEN], "there is no model file"),
        (["no_module:act", *OPEN], "cannot be imported"),
        (["json:JSONDecodeError.nothing", *OPEN], "cannot be imported"),
        (["process:", *OPEN], "--artefact"),
        (["random", *OPEN, "--artefact", "gone.txt"], "cannot be read"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else None,
)
def test_wrong_commands(rao: Rao, here: Path, arguments: list[str], message: str) -> None:
    made = rao("submit", *arguments, "--name", "x", *WORDS, "--out", "subs")
    assert made.code == 2 and message in made.err
    assert not (here / "subs").exists()


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--name", "Not A Slug", "--name"),
        ("--author", "line\nbreak", "--author"),
        ("--code-url", "ftp://example.org", "--code-url"),
        ("--commit", "HEAD", "--commit"),
        ("--description", "x" * 3000, "--description"),
    ],
)
def test_words_that_are_not_allowed_name_their_option(rao: Rao, here: Path, option: str, value: str, message: str) -> None:
    made = rao("submit", "random", *OPEN, "--name", "x", *WORDS, "--out", "subs", option, value)
    assert made.code == 2 and message in made.err
    assert not (here / "subs").exists()


def test_changed_environments_are_refused(rao: Rao, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rao_leaderboard import fingerprints

    monkeypatch.setattr(fingerprints, "differences", lambda env_id, entry: [f"{env_id}: it differs by step 3"])
    made = rao("submit", "random", *OPEN, "--name", "x", *WORDS, "--out", "subs")
    assert made.code == 2 and "this rao_envs was changed" in made.err


def test_shipped_models_play_their_own_family(here: Path) -> None:
    source = sources.make_source("recursive_ppo_algebra", "run-0", [], {}, 1.0, None, False)
    found = playing.choose_tasks(source, ["standard", "zero-shot"], [])
    assert [task.env_id for task in found] == ["RAO/Algebra-depth8-v0", "RAO/Algebra-depth12-v0"]
    assert source.training_steps == 401_408 and source.trained_on == ('RAO/Algebra-v0 {"depth":[1,4]}',)


@pytest.mark.parametrize("folder", sorted((ROOT / "leaderboard" / "submissions").glob("*/")), ids=lambda path: path.name)
def test_our_own_submissions_hold(folder: Path) -> None:
    report = verify(folder)
    assert report.ok, report.problems


def test_the_walk_through(rao: Rao, here: Path) -> None:
    """The commands of leaderboard/README.md, as they stand there but for fewer steps and one task."""
    text = (ROOT / "leaderboard" / "README.md").read_text(encoding="utf-8")
    commands = [
        shlex.split(line, comments=True)
        for line in re.findall(r"^rao (.*)$", text, flags=re.MULTILINE)
        if "my-agent" in line or line.startswith(("train", "leaderboard"))
    ]
    assert [command[0] for command in commands] == ["train", "submit", "verify", "leaderboard", "leaderboard"]
    for git in (["init", "-q"], ["-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-q", "--allow-empty", "-m", "x"]):
        subprocess.run(["git", *git], check=True)
    shorter = {"train": ["--steps", "2048", "--eval-episodes", "2", "--final-episodes", "2"], "submit": ["--task", "RAO/Maze-20x20-v0"]}
    for command in commands:
        made = rao(*command, *shorter.get(command[0], []), *(["--no-episodes"] if "build" in command else []))
        assert made.code == 0, (command, made.err)
    assert (here / "site" / "index.html").is_file()
    assert manifest(here / "leaderboard/submissions/my-agent")["runs"][0]["artefact"]["onnx"]
