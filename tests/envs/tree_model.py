"""The protocol's call tree, modelled once more in plain Python from what an environment tells its agent.

`TreeModel` is fed every action and `info` of an episode. It rebuilds the tree and asserts that all that the environment says about it
(events, ids, returns, statistics, the `call` observation) is what follows from PROTOCOL rules 2, 3, 5 and 7.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rao_envs.core.env import RecursiveEnv

RETURN_KEYS = {
    "frame_id",
    "parent_id",
    "depth",
    "action",
    "success",
    "reward",
    "value",
    "steps",
    "critical_path",
    "children",
    "successes",
}


@dataclass
class Node:
    """One frame."""

    id: int
    parent: int
    depth: int
    action: int
    opened: int  # the clock then
    budget: int
    root_left: int  # root steps left when it opened, as far as it can know
    path: int = 0  # critical path so far
    children: int = 0
    successes: int = 0
    spawns: int = 0
    last: str = "opened"  # what its `call` observation shows: opened, nothing, success or failure
    group_paths: list[int] = field(default_factory=list)  # of the latest spawn's children
    group_left: int = 0  # steps that its next children may still be given
    group_root_left: int = 0
    open: bool = True


class TreeModel:
    """The tree of one running episode of a single environment (or of a detached child: then its frame is the model's root)."""

    def __init__(self, env: RecursiveEnv, observation: Mapping[str, Any], info: Mapping[str, Any]) -> None:
        self.env = env
        self.clock = 0
        self.total = int(env.batch.stack.limits["budget"][0])
        base = int(env.batch.stack.episodes["base"][0])
        frame = env.batch.stack.frames[0, base]
        self.root = Node(
            info["frame_id"], info["parent_id"], info["depth"], int(frame["action"]), 0, int(frame["budget"]), int(frame["root_left"])
        )
        if base == 0:
            assert (self.root.id, self.root.parent, self.root.depth, self.root.action) == (0, -1, 0, -1)
            assert self.root.budget == self.root.root_left == self.total
        self.nodes = {self.root.id: self.root}
        self.acting = self.root
        self.over = False
        assert info["event"] == "reset"
        assert info["returned"] == ()
        self.check_observation(observation, info)

    def step(self, action: int, observation: Mapping[str, Any], terminated: bool, truncated: bool, info: Mapping[str, Any]) -> None:
        """Take in one step's action and what came of it."""
        assert not self.over
        self.clock += 1
        actor = self.acting
        actor.path += 1
        actor.last = "nothing"
        self.over = terminated or truncated
        assert not (terminated and truncated)
        assert ("is_success" in info) == ("tree" in info) == self.over
        if info["frame_id"] not in self.nodes and not info["returned"]:
            assert info["event"] == "spawn"
            actor.spawns += 1
            actor.group_paths = []
            actor.group_left = self.left(actor)
            actor.group_root_left = actor.root_left - (self.clock - actor.opened)
            self.open(info, actor, action)
        else:
            self.close(info)
        if self.over:
            self.check_end(info)
        self.check_budgets()
        self.check_observation(observation, info)

    def left(self, node: Node) -> int:
        return node.budget - (self.clock - node.opened)

    def open(self, info: Mapping[str, Any], parent: Node, action: int) -> None:
        """A child of `parent` acts now."""
        assert info["frame_id"] not in self.nodes, "frame ids are unique within an episode"
        assert action in self.env.spawn_actions
        assert info["parent_id"] == parent.id
        assert info["depth"] == parent.depth + 1
        stack = self.env.batch.stack
        budget = int(stack.frames["budget"][0, info["depth"]])
        assert 1 <= budget <= parent.group_left, "siblings share what the parent had left at the spawn"
        parent.group_left -= budget
        self.acting = Node(info["frame_id"], parent.id, parent.depth + 1, action, self.clock, budget, parent.group_root_left)
        self.nodes[self.acting.id] = self.acting

    def close(self, info: Mapping[str, Any]) -> None:
        """Some frames ended, innermost first, or none did."""
        expected: Node | None = self.acting
        assert info["event"] == ("return" if info["returned"] else "step")
        last_action = -1
        for entry in info["returned"]:
            assert set(entry) == RETURN_KEYS
            node = self.nodes[entry["frame_id"]]
            assert node is expected, "frames end innermost first, each directly below the next"
            assert node.open, "a frame closes once"
            node.open = False
            assert entry["parent_id"] == node.parent
            assert entry["depth"] == node.depth
            assert entry["action"] == node.action
            assert entry["steps"] == self.clock - node.opened <= node.budget
            assert entry["critical_path"] == node.path <= entry["steps"]
            assert (entry["children"], entry["successes"]) == (node.children, node.successes)
            assert entry["success"] in (True, False)
            last_action = node.action
            expected = self.nodes.get(node.parent)
            if expected is not None:
                assert expected.open, "no frame outlives its parent"
                expected.children += 1
                expected.successes += entry["success"]
                expected.group_paths.append(node.path)
                expected.last = "success" if entry["success"] else "failure"
                sibling_opens = entry is info["returned"][-1] and info["frame_id"] not in self.nodes
                if not sibling_opens:
                    expected.path += max(expected.group_paths)
        if info["frame_id"] not in self.nodes:
            assert expected is not None
            self.open(info, expected, last_action)
        elif self.over:
            assert expected is None
            self.acting = self.root
        else:
            assert expected is not None
            self.acting = expected
        assert info["frame_id"] == self.acting.id
        assert info["parent_id"] == self.acting.parent
        assert info["depth"] == self.acting.depth

    def check_end(self, info: Mapping[str, Any]) -> None:
        assert not any(node.open for node in self.nodes.values()), "every frame that opens closes"
        assert info["returned"][-1]["frame_id"] == self.root.id
        assert info["is_success"] == info["returned"][-1]["success"]
        assert info["tree"] == {
            "nodes": len(self.nodes),
            "deepest": max(node.depth for node in self.nodes.values()) - self.root.depth,
            "spawns": sum(node.spawns for node in self.nodes.values()),
            "steps": self.clock,
            "critical_path": self.root.path,
        }

    def check_budgets(self) -> None:
        assert self.clock <= self.root.budget
        assert self.acting.depth <= self.env.batch.stack.limits["max_depth"][0]
        node = self.acting
        while node is not self.root:
            assert 0 <= self.left(node) <= self.left(self.nodes[node.parent])
            node = self.nodes[node.parent]

    def check_observation(self, observation: Mapping[str, Any], info: Mapping[str, Any]) -> None:
        """The keys that do not depend on the family."""
        node, mask = self.acting, observation["action_mask"]
        np.testing.assert_array_equal(info["action_mask"], mask)
        np.testing.assert_array_equal(self.env.action_masks(), mask == 1)
        may_spawn = bool(mask[self.env.spawn_actions].any())
        assert not may_spawn or (self.left(node) > 1 and node.depth < self.env.batch.stack.limits["max_depth"][0])
        expected = [
            may_spawn,
            self.left(node) / node.budget,
            (node.root_left - (self.clock - node.opened)) / self.total,
            node.last == "opened",
            self.env.domain.verdicts and node.last == "success",
            self.env.domain.verdicts and node.last == "failure",
        ]
        np.testing.assert_array_equal(observation["call"], np.array(expected, np.float32))
        assert self.over or mask.any(), "a frame can always do something"
