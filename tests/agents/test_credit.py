"""Credit across frames: trees worked out by hand, and what must hold for any tree and any rollout length."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from driving import Value, drive, flat
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_envs import Event, EventTree, FactsVecEnv, random_events, script

GAMMA, LAM = 0.9, 0.5


def learned(
    credit: str, *events: Event, value: Value = flat, steps: int | None = None, rollouts: int = 1, **kwargs: Any
) -> dict[int, float]:
    options = {"gamma": GAMMA, "gae_lambda": LAM, "credit": credit, **kwargs}
    transitions, _ = drive([EventTree(script(*events))], rollouts, steps or len(events), value, **options)
    return {number: transition.advantage for number, transition in transitions.items()}


# The root spawns (0); the child decides twice (1, 2) and fails its own task; the root decides (3) and is paid 1.
ERRAND = (Event("spawn"), Event("step"), Event("return", 0.0, (0.0,)), Event("done", 1.0))


@pytest.mark.parametrize("credit", ["tree", "root"])
def test_a_child_is_credited_with_what_its_parent_makes_of_it(credit: str) -> None:
    """With lambda 1 and no values, all see the 1 at the end, discounted by the steps to it."""
    got = learned(credit, *ERRAND, gae_lambda=1.0)
    assert got == pytest.approx({0: 0.9**3, 1: 0.9**2, 2: 0.9, 3: 1.0})
    # By node the child gets its own outcome, 0.
    assert learned("node", *ERRAND, gae_lambda=1.0) == pytest.approx({0: 0.9**3, 1: 0.0, 2: 0.0, 3: 1.0})


@pytest.mark.parametrize("credit", ["tree", "root"])
def test_a_childs_end_is_bootstrapped_with_its_parents_value(credit: str) -> None:
    """V = 10 times the number of the decision: the child's last one (2) goes on with V(3) = 30, the root's next."""
    tens: Value = lambda number, rollout: 10.0 * np.asarray(number, np.float64)  # noqa: E731
    got = learned(credit, *ERRAND, value=tens)
    a3 = 1.0 - 30.0
    a2 = 0.9 * 30.0 - 20.0 + 0.9 * 0.5 * a3
    a1 = 0.9 * 20.0 - 10.0 + 0.9 * 0.5 * a2
    a0 = 0.9**3 * 30.0 - 0.0 + 0.9**3 * 0.5 * a3  # past the child: not through (1) and (2)
    assert got == pytest.approx({0: a0, 1: a1, 2: a2, 3: a3})


def test_what_each_mode_pays() -> None:
    """The child succeeds (1); 0.1 a decision; 0.5 for a root all of whose children succeeded; the task pays 4."""
    events = (Event("spawn"), Event("return", 0.0, (1.0,)), Event("done", 4.0))
    options: dict[str, Any] = {"gamma": 1.0, "gae_lambda": 1.0, "step_cost": 0.1, "bonus": 0.5}
    # Root: 4 + 0.5 - 0.1 at (2), and another -0.1 at (0). Child: 1 - 0.1.
    assert learned("node", *events, **options) == pytest.approx({2: 4.4, 0: 4.3, 1: 0.9})
    # The child's, and what the root gets from then on: 0.9 + 4.4.
    assert learned("tree", *events, **options) == pytest.approx({2: 4.4, 0: 4.3, 1: 5.3})
    # The task's reward alone.
    assert learned("root", *events, **options) == pytest.approx({2: 4.0, 0: 4.0, 1: 4.0})


def test_siblings_are_passed_over() -> None:
    """Two children, one after the other (1), (2): each answers for itself and for the root, not for the other."""
    events = (Event("spawn"), Event("switch", 0.0, (0.0,)), Event("return", 0.0, (1.0,)), Event("done", 4.0))
    options: dict[str, Any] = {"gamma": 1.0, "gae_lambda": 1.0}
    assert learned("tree", *events, **options) == pytest.approx({3: 4.0, 0: 4.0, 1: 0.0 + 4.0, 2: 1.0 + 4.0})
    # Discounted, and bootstrapped: the first child waits two steps for V(3) = 7, not one for V(2).
    values: Value = lambda number, rollout: np.where(np.asarray(number) == 3, 7.0, 100.0 * np.asarray(number, np.float64))  # noqa: E731
    got = learned("tree", *events, value=values, gae_lambda=0.0)
    assert got == pytest.approx({3: 4.0 - 7.0, 2: 1.0 + 0.9 * 7.0 - 200.0, 1: 0.9**2 * 7.0 - 100.0, 0: 0.9**3 * 7.0})


def test_rewards_while_siblings_act_are_the_ancestors() -> None:
    """Paid 2 when the first child ends and 8 when the second does: the first is credited with both."""
    events = (Event("spawn"), Event("switch", 2.0, (0.0,)), Event("return", 8.0, (0.0,)), Event("done", 0.0))
    for credit in ("tree", "root"):
        assert learned(credit, *events, gae_lambda=1.0) == pytest.approx({3: 0.0, 2: 8.0, 1: 2.0 + 0.9 * 8.0, 0: 0.9 * 2.0 + 0.81 * 8.0})


def test_cascade() -> None:
    """One step ends a grandchild (outcome 1), its parent (outcome 2) and lets the root act: own and parent's both count."""
    events = (Event("spawn"), Event("spawn"), Event("return", 0.0, (1.0, 2.0)), Event("done", 4.0))
    got = learned("tree", *events, gae_lambda=1.0)
    # Grandchild (2): 1 + 2 now, 4 a step later. Child (1): waits one step longer for all of it, less the 1.
    assert got == pytest.approx({3: 4.0, 2: 3.0 + 0.9 * 4.0, 1: 0.9 * 2.0 + 0.81 * 4.0, 0: 0.9**3 * 4.0})
    assert learned("root", *events, gae_lambda=1.0) == pytest.approx({3: 4.0, 2: 0.9 * 4.0, 1: 0.81 * 4.0, 0: 0.9**3 * 4.0})


@pytest.mark.parametrize("unreported", [0.0, 1.0])
def test_the_whole_stack_ends_with_the_episode(unreported: float) -> None:
    """Also at a time-out that reports no frames: nothing is bootstrapped beyond it, and the last reward is everybody's."""
    fives: Value = lambda number, rollout: np.full_like(np.asarray(number, np.float64), 5.0)  # noqa: E731
    events = (Event("spawn"), Event("switch", 0.0, (0.0,)), Event("spawn"), Event("done", 1.0, (unreported,)))
    for credit in ("tree", "root"):
        got = learned(credit, *events, value=fives)
        assert got == pytest.approx({0: 0.9**3 - 5.0, 1: 0.9**2 - 5.0, 2: 0.9 - 5.0, 3: 1.0 - 5.0})


def test_an_ended_child_waits_over_the_edge() -> None:
    """Rollouts of two steps: the first child has ended (1) when the second acts; both wait for the root's decision (4)."""
    value: Value = lambda number, rollout: np.asarray(number, np.float64) + 100.0 * rollout  # noqa: E731
    events = (
        Event("spawn", 1.0),
        Event("switch", 2.0, (4.0,)),
        Event("step", 8.0),
        Event("return", 16.0, (0.0,)),
        Event("step", 32.0),
        Event("step"),
    )
    got = learned("tree", *events, value=value, steps=2, rollouts=3)
    # Completed at the end of the second rollout, whose network is 100 higher: V(4) = 104.
    assert got[0] == pytest.approx(1.0 + 0.9 * 2.0 + 0.81 * 8.0 + 0.9**3 * 16.0 + 0.9**4 * 104.0 - 100.0)
    assert got[1] == pytest.approx(4.0 + 2.0 + 0.9 * 8.0 + 0.81 * 16.0 + 0.9**3 * 104.0 - 101.0)
    assert got[3] == pytest.approx(16.0 + 0.9 * 104.0 - 103.0)
    assert got[2] == pytest.approx(8.0 + 0.9 * 103.0 - 102.0 + 0.9 * 0.5 * got[3])
    early = learned("tree", *events[:2], value=value)
    assert early == {}, "neither is complete before"


@pytest.mark.parametrize(("form", "paid"), [("average", 2 / 3), ("sum", 2.0)])
def test_forms_of_the_bonus(form: str, paid: float) -> None:
    """Three children, two successful."""
    children = [event for outcome in (1.0, 0.0, 1.0) for event in (Event("spawn"), Event("return", 0.0, (outcome,)))]
    got = learned("node", *children, Event("done", 0.0), bonus=0.6, bonus_form=form)
    assert got[6] == pytest.approx(0.6 * paid)


def test_a_frame_pays_for_each_child_that_it_opens() -> None:
    """1 a child, and half as much again for each level: the root pays 1.5, a child of the root 2."""
    prices: dict[str, Any] = {"prices": (1.0, 0.5), "gae_lambda": 1.0}
    errand = {"node": {0: -1.5 + 0.9**3, 1: 0.0, 2: 0.0, 3: 1.0}}
    # The child's decisions answer for the root's rewards, but the price was paid before them.
    errand["tree"] = {0: -1.5 + 0.9**3, 1: 0.9**2, 2: 0.9, 3: 1.0}
    errand["root"] = errand["tree"]
    for credit, expected in errand.items():
        assert learned(credit, *ERRAND, **prices) == pytest.approx(expected), credit
    # Two levels: with credit by root the first spawn answers for what the second costs, otherwise each for its own.
    events = (Event("spawn"), Event("spawn"), Event("return", 0.0, (0.0, 0.0)), Event("done", 4.0))
    assert learned("node", *events, **prices) == pytest.approx({0: -1.5 + 0.9**3 * 4.0, 1: -2.0, 2: 0.0, 3: 4.0})
    assert learned("tree", *events, **prices) == pytest.approx({0: -1.5 + 0.9**3 * 4, 1: -2.0 + 0.81 * 4, 2: 0.9 * 4, 3: 4.0})
    assert learned("root", *events, **prices) == pytest.approx({0: -1.5 - 0.9 * 2 + 0.9**3 * 4, 1: -2.0 + 0.81 * 4, 2: 3.6, 3: 4.0})


def test_siblings_are_paid_for_when_they_open() -> None:
    """One spawn opens two children, one after the other: the second costs 1.5 a step later."""
    events = (Event("spawn"), Event("switch", 0.0, (0.0,)), Event("return", 0.0, (0.0,)), Event("done", 4.0))
    prices: dict[str, Any] = {"prices": (1.0, 0.5), "gae_lambda": 1.0}
    assert learned("node", *events, **prices) == pytest.approx({0: -1.5 - 0.9 * 1.5 + 0.9**3 * 4, 1: 0.0, 2: 0.0, 3: 4.0})
    # The first child has ended by then, and answers for what its parent is paid from there on.
    first = -1.5 + 0.81 * 4
    assert learned("tree", *events, **prices) == pytest.approx({0: -1.5 - 0.9 * 1.5 + 0.9**3 * 4, 1: first, 2: 0.9 * 4, 3: 4.0})


def test_children_that_end_at_once_cost_as_much() -> None:
    """Opened and closed within a step; and two opened in one step, of which the upper has decided nothing and pays nothing."""
    prices: dict[str, Any] = {"prices": (1.0, 0.5), "gae_lambda": 1.0, "gamma": 1.0}
    assert learned("node", Event("pop"), Event("done", 4.0), **prices) == pytest.approx({0: 2.5, 1: 4.0})
    deep = (Event("deep"), Event("return", 0.0, (1.0,)), Event("spawn"), Event("return", 0.0, (1.0, 1.0)), Event("done", 4.0))
    assert learned("node", *deep, **prices) == pytest.approx({0: 2.5, 1: 1.0, 2: 1.0 - 2.0, 3: 1.0, 4: 4.0})
    assert learned("root", *deep, **prices) == pytest.approx({0: 4.0 - 1.5 - 2.0 - 2.0, 1: 2.0, 2: 2.0, 3: 4.0, 4: 4.0})


def test_a_price_of_nothing_changes_nothing() -> None:
    for credit in ("node", "tree", "root"):
        tree = [EventTree(random_events(np.random.default_rng(0), 3)) for _ in range(2)]
        assert drive(tree[:1], 4, 9, flat, credit=credit)[0] == drive(tree[1:], 4, 9, flat, credit=credit, prices=(0.0, 0.0))[0]


def test_an_unknown_parent() -> None:
    """Training begins inside a child, whose parent was never seen: what it waits for is known by its depth."""
    env = EventTree(script(Event("spawn"), Event("return", 2.0, (1.0,)), Event("step"), Event("done", 4.0)))
    got, _ = drive([env], 1, 3, flat, FactsVecEnv, gamma=1.0, gae_lambda=1.0, credit="tree", skip=1)
    assert {number: transition.advantage for number, transition in got.items()} == pytest.approx({1: 7.0, 2: 4.0, 3: 4.0})
    # The same where parent and child end in one step.
    env = EventTree(script(Event("spawn"), Event("spawn"), Event("return", 2.0, (1.0, 8.0)), Event("step"), Event("done", 4.0)))
    got, _ = drive([env], 1, 3, flat, FactsVecEnv, gamma=1.0, gae_lambda=1.0, credit="tree", skip=2)
    assert {number: transition.advantage for number, transition in got.items()} == pytest.approx({2: 15.0, 3: 4.0, 4: 4.0})


def returns(
    log: list[dict[str, Any]], gamma: float, credit: str, step_cost: float, bonus: float, prices: tuple[float, float]
) -> dict[int, float]:
    """What each decision of the finished episodes in `log` is answerable for, discounted to it: {observation: return}."""
    last = max((t for t, entry in enumerate(log) if entry["done"]), default=-1)
    paid: dict[tuple[int, int], list[tuple[int, float]]] = {}  # (episode, frame) -> [(time, amount)]
    for t, entry in enumerate(log[: last + 1]):
        paid.setdefault((entry["episode"], entry["stack"][0]), []).append((t, entry["reward"]))
        for payer, depth in entry["opened"]:
            who = entry["stack"][0] if credit == "root" else payer
            paid.setdefault((entry["episode"], who), []).append((t, -prices[0] - prices[1] * depth))
        if credit != "root":
            paid.setdefault((entry["episode"], entry["frame"]), []).append((t, -step_cost))
            for ended in entry["returned"]:
                amount = ended["reward"] if ended["depth"] > 0 else 0.0
                amount += bonus * ended["successes"] / max(ended["children"], 1)
                paid.setdefault((entry["episode"], ended["frame_id"]), []).append((t, amount))
    result = {}
    for t, entry in enumerate(log[: last + 1]):
        frames = entry["stack"][-1:] if credit == "node" else entry["stack"]
        events = [pay for frame in frames for pay in paid.get((entry["episode"], frame), [])]
        result[entry["obs"]] = sum(gamma ** (s - t) * amount for s, amount in events if s >= t)
    return result


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    steps=st.integers(1, 12),
    max_depth=st.integers(0, 4),
    gamma=st.floats(0.5, 1.0),
    lam=st.floats(0.0, 1.0),
    credit=st.sampled_from(["node", "tree", "root"]),
    prices=st.sampled_from([(0.0, 0.0), (0.2, 0.0), (0.0, 0.1), (0.3, 0.05)]),
)
def test_with_true_values_there_is_no_advantage(
    seed: int, steps: int, max_depth: int, gamma: float, lam: float, credit: str, prices: tuple[float, float]
) -> None:
    """Nothing is left to chance in a script: a critic that knows it leaves no advantage, however rollouts are cut."""

    def env() -> EventTree:
        return EventTree(random_events(np.random.default_rng(seed), max_depth))

    rehearsal = env()
    rehearsal.reset()
    while len(rehearsal.log) < 60 or not rehearsal.log[-1]["done"]:
        if rehearsal.step(0)[2:4] != (False, False):
            rehearsal.reset()
    known = returns(rehearsal.log, gamma, credit, 0.1, 0.3, prices)
    true: Value = lambda number, rollout: np.vectorize(known.__getitem__, otypes=[float])(np.asarray(number, int))  # noqa: E731
    options: dict[str, Any] = {"step_cost": 0.1, "bonus": 0.3, "gamma": gamma, "gae_lambda": lam, "credit": credit, "prices": prices}
    got, _ = drive([env()], 40 // steps, steps, true, **options)
    assert len(got) > 0 or steps * (40 // steps) < 40 or max_depth > 0
    for number, transition in got.items():
        assert transition.advantage == pytest.approx(0.0, abs=3e-5), number
