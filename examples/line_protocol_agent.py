"""A program that acts over lines of JSON: delegate where possible, else any allowed action.

    rao submit "process:python examples/line_protocol_agent.py" --artefact examples/line_protocol_agent.py --task RAO/Maze-20x20-v0 ...

Nothing but Python is needed: any language that reads and writes lines will do.
"""

from __future__ import annotations

import json
import random
import sys


def main() -> None:
    """Answer line after line until there are no more."""
    names: list[str] = []
    for line in sys.stdin:
        message = json.loads(line)
        if message["type"] == "hello":
            names = message["action_names"]
            answer = {"type": "ready"}
        else:
            answer = {"type": "actions", "actions": [choose(row, names) for row in message["rows"]]}
        print(json.dumps(answer), flush=True)


def choose(row: dict, names: list[str]) -> int:
    """One action; chance depends on the episode and the step alone."""
    rng = random.Random(1_000_003 * row["episode"] + row["step"])
    allowed = [action for action, may in enumerate(row["mask"]) if may] or list(range(len(names)))
    spawns = [action for action in allowed if names[action].startswith("spawn")]
    return rng.choice(spawns if spawns and rng.random() < 0.5 else allowed)


if __name__ == "__main__":
    main()
