"""The Rewrite family's configuration and dynamics, in plain Python: nothing here is compiled, SymPy does the work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from rao_envs.core.arguments import whole_number
from rao_envs.core.callstack import RUNNING, SUCCESS, CallStack, Observation
from rao_envs.core.domain import Domain
from rao_envs.core.rng import below
from rao_envs.rewrite.bridge import canonical, put_back
from rao_envs.rewrite.generator import draw_task
from rao_envs.rewrite.parser import ExpressionSource, parse_expressions
from rao_envs.rewrite.plan import FAN, Limits, child_budget
from rao_envs.rewrite.printing import to_text
from rao_envs.rewrite.rules import DEFAULT_RULES, DERIVATIVE_FREE, FORMS, RULES, Rule, applicable, apply, has_form
from rao_envs.rewrite.tokens import (
    ADD,
    BIG,
    BIG_NEGATIVE,
    CLOSE,
    DERIVATIVE,
    DIGIT,
    EXP,
    INTEGER,
    LOG,
    MUL,
    PAD,
    POW,
    RATIO,
    SMALL,
    SYMBOL,
    TRIGONOMETRIC,
    VOCABULARY,
    Node,
    UnrepresentableError,
    analyse,
    top,
)

MOVES = ("down", "next", "up")
DOWN, NEXT, UP = range(3)
SPAWN_ALL = len(FORMS)  # counted among the spawn actions

# What the window tells apart: every operator, function and symbol, and numbers by size.
CHANNELS = 23
NUMBER_CHANNEL = 17  # at most -2, -1, 0, 1, 2, at least 3
OPERATORS = 8  # none, a number, a symbol, a sum, a product, a power, a function, a derivative
MOST_OPERANDS = 6  # of the cursor's node, seen one by one
MOST_PARTS = 4
FLAGS = 7
STANDING = 6  # facts about the cursor's node


def _channels() -> npt.NDArray[np.int8]:
    """Window channel of every token, int8 (VOCABULARY,); -1: none (padding)."""
    table = np.full(VOCABULARY, -1, np.int8)
    table[CLOSE : SYMBOL + 3] = np.arange(SYMBOL + 2)
    table[DIGIT : DIGIT + 10] = NUMBER_CHANNEL - 1
    for value in range(-SMALL, SMALL + 1):
        table[INTEGER + value] = NUMBER_CHANNEL + min(max(value, -2), 3) + 2
    table[BIG], table[BIG_NEGATIVE] = NUMBER_CHANNEL + 5, NUMBER_CHANNEL
    return table


CHANNEL_OF = _channels()


def operator_class(token: int) -> int:
    """Which of OPERATORS a node is, by its first token."""
    if token in (ADD, MUL, POW):
        return 3 + token - ADD
    if token == RATIO or token >= BIG:
        return 1
    if token >= SYMBOL:
        return 2
    return 7 if token >= DERIVATIVE else 6


class RewriteState(NamedTuple):
    """Every frame holds its own sub-expression; what a child makes of it replaces the part that it was opened on when it returns."""

    config: npt.NDArray[np.int64]  # (3,) window, levels, root budget; shared
    rules: npt.NDArray[np.int8]  # (R,) indices into RULES; shared
    forms: npt.NDArray[np.int8]  # forms that may be asked for, indices into FORMS; shared
    given: npt.NDArray[np.uint8]  # (m, capacity) expressions of one's own; shared
    given_length: npt.NDArray[np.int16]  # (m,); shared
    choice: npt.NDArray[np.int32]  # (n,) which of them the next episode has; -1: any
    total: npt.NDArray[np.int32]  # (n,) obstacles in the task
    expression: npt.NDArray[np.uint8]  # (n, D, capacity) tokens, padded
    length: npt.NDArray[np.int16]  # (n, D)
    before: npt.NDArray[np.uint8]  # (n, D, capacity) the frame's expression when it opened its latest children
    before_length: npt.NDArray[np.int16]  # (n, D)
    form: npt.NDArray[np.int8]  # (n, D) what is asked for
    cursor: npt.NDArray[np.int16]  # (n, D) start of the cursor's node
    tried: npt.NDArray[np.int8]  # (n, D, R) rules that did nothing here
    results: npt.NDArray[np.int8]  # (n, D, S) whether the latest children all succeeded, by spawn action, since the cursor came here
    places: npt.NDArray[np.int16]  # (n, D, FAN) where the latest children's parts are now
    which: npt.NDArray[np.int8]  # (n, D) which of its siblings the frame is
    won: npt.NDArray[np.int8]  # (n, D) how many of its latest children have succeeded
    low: npt.NDArray[np.int32]  # (n, D) obstacles below which removing one is paid
    surplus: npt.NDArray[np.int32]  # (n, D) obstacles above `low` when it opened its latest children
    gained: npt.NDArray[np.int32]  # (n, D) obstacles removed and paid so far by the frame and its returned children

    # -- reading -----------------------------------------------------------------------------------------------------------------

    def tokens(self, i: int, depth: int) -> bytes:
        """The frame's expression."""
        return self.expression[i, depth, : self.length[i, depth]].tobytes()

    def rule(self, k: int) -> Rule:
        """The rule that primitive len(MOVES) + k applies."""
        return RULES[self.rules[k]]

    # -- hooks -------------------------------------------------------------------------------------------------------------------

    def begin(self, stack: CallStack, i: int) -> None:
        """Draw a task, or take one of the given expressions."""
        rng = stack.rng[i]
        forms = tuple(self.forms.tolist())
        if len(self.given):
            chosen = int(self.choice[i]) if self.choice[i] >= 0 else below(rng, len(self.given))
            tokens = self.given[chosen, : self.given_length[chosen]].tobytes()
            open_forms = [form for form in forms if not has_form(form, tokens)]
            form = open_forms[below(rng, len(open_forms))]
        else:
            window, levels, budget = self.config.tolist()
            limits = Limits(window, self.expression.shape[2], budget // 2, self.expression.shape[1] - 1)
            tokens, form, _ = draw_task(rng, levels, forms, limits)
        self.total[i] = top(tokens).obstacles
        self.places[i] = 0
        self.before[i] = 0
        self.before_length[i] = 0
        self.set_frame(i, 0, tokens, form, 0, 0)

    def set_frame(self, i: int, depth: int, tokens: bytes, form: int, which: int, surplus: int) -> None:
        """Make the records of a new frame."""
        self.put(i, depth, tokens)
        self.form[i, depth] = form
        self.won[i, depth] = 0
        self.which[i, depth] = which
        self.low[i, depth] = top(tokens).obstacles - surplus
        self.surplus[i, depth] = 0
        self.gained[i, depth] = 0
        self.arrive(i, depth, 0)

    def put(self, i: int, depth: int, tokens: bytes) -> None:
        """Write the frame's expression."""
        self.expression[i, depth, : len(tokens)] = np.frombuffer(tokens, np.uint8)
        self.expression[i, depth, len(tokens) :] = PAD
        self.length[i, depth] = len(tokens)

    def arrive(self, i: int, depth: int, cursor: int) -> None:
        """Put the cursor somewhere, or on something new."""
        self.cursor[i, depth] = cursor
        self.tried[i, depth] = 0
        self.results[i, depth] = 0

    def allowed(self, stack: CallStack, i: int, action: int) -> bool:
        """A move that leads somewhere; a rule that fits, finds its business and is untried here; a spawn on a part without the form."""
        depth = stack.episodes[i]["depth"]
        tokens = self.tokens(i, depth)
        nodes = analyse(tokens)
        node = nodes[int(self.cursor[i, depth])]
        if action < len(MOVES):
            if action == DOWN:
                return not node.atom
            return node.parent >= 0 and (action == UP or node.order + 1 < len(nodes[node.parent].children))
        action -= len(MOVES)
        if action < len(self.rules):
            fits = node.end - node.start <= self.config[0]
            return bool(fits and not self.tried[i, depth, action] and applicable(self.rule(action), tokens[node.start], node))
        form = action - len(self.rules)
        if form == SPAWN_ALL:
            return len(node.parts) > 0
        return node.parent >= 0 and not node.atom and not has_form(form, tokens[node.start : node.end])

    def act(self, stack: CallStack, i: int, action: int) -> None:
        """Move the cursor or apply a rule."""
        depth = stack.episodes[i]["depth"]
        tokens = self.tokens(i, depth)
        nodes = analyse(tokens)
        node = nodes[int(self.cursor[i, depth])]
        if action >= len(MOVES):
            self.rewrite(i, depth, tokens, node, action - len(MOVES))
        elif action == DOWN:
            self.arrive(i, depth, node.children[0])
        else:
            self.arrive(i, depth, node.parent if action == UP else nodes[node.parent].children[node.order + 1])

    def rewrite(self, i: int, depth: int, tokens: bytes, node: Node, k: int) -> None:
        """Apply a rule at the cursor, or note that it does nothing here."""
        new = apply(self.rule(k).name, tokens[node.start : node.end])
        if new is None or not self.replace(i, depth, tokens, node.start, new):
            self.tried[i, depth, k] = 1

    def replace(self, i: int, depth: int, tokens: bytes, at: int, new: bytes) -> bool:
        """Put `new` where the node at `at` is in `tokens`, and make that the frame's expression; returns whether that changed it."""
        try:
            whole, cursor = put_back(tokens, at, new)
        except UnrepresentableError:
            return False
        if len(whole) > self.expression.shape[2] or whole == tokens:
            return False
        self.put(i, depth, whole)
        self.arrive(i, depth, cursor)
        self.pay(i, depth, top(whole).obstacles)
        return True

    def pay(self, i: int, depth: int, obstacles: int) -> None:
        """Pay what is newly gone: a ratchet, so that putting obstacles back and removing them again earns nothing."""
        if obstacles < self.low[i, depth]:
            self.gained[i, depth] += self.low[i, depth] - obstacles
            self.low[i, depth] = obstacles

    def fanout(self, stack: CallStack, i: int, action: int) -> int:
        """One child; as many as there are parts, up to FAN, for `spawn_all`."""
        if action < len(MOVES) + len(self.rules) + SPAWN_ALL:
            return 1
        depth = stack.episodes[i]["depth"]
        return min(FAN, len(analyse(self.tokens(i, depth))[int(self.cursor[i, depth])].parts))

    def open_child(self, stack: CallStack, i: int, action: int, k: int) -> int:
        """Open a frame on the part at the cursor, or on the k-th part below it."""
        depth = stack.episodes[i]["depth"]
        tokens = self.tokens(i, depth)
        form = action - len(MOVES) - len(self.rules)
        if k == 0:
            node = analyse(tokens)[int(self.cursor[i, depth])]
            places = node.parts[:FAN] if form == SPAWN_ALL else (node.start,)
            self.places[i, depth] = 0
            self.places[i, depth, : len(places)] = places
            self.won[i, depth] = 0
            self.surplus[i, depth] = max(0, top(tokens).obstacles - int(self.low[i, depth]))
            self.before[i, depth] = self.expression[i, depth]
            self.before_length[i, depth] = self.length[i, depth]
        at = int(self.places[i, depth, k])
        part = tokens[at : analyse(tokens)[at].end]
        # A child is paid for what it removes beyond what this frame has put back before.
        self.set_frame(i, depth + 1, part, 0 if form == SPAWN_ALL else form, k, int(self.surplus[i, depth]))
        return child_budget(top(part).obstacles)

    def resolve(self, stack: CallStack, i: int) -> int:
        """Success once the expression has the form; rules cannot make it wrong, so there is no failure but time."""
        depth = stack.episodes[i]["depth"]
        return SUCCESS if has_form(int(self.form[i, depth]), self.tokens(i, depth)) else RUNNING

    def receive(self, stack: CallStack, i: int, success: bool) -> None:
        """Put what the child made of its part in the part's place."""
        depth = stack.episodes[i]["depth"]
        k, group = int(self.which[i, depth + 1]), int(stack.frames[i, depth]["group"])
        self.low[i, depth] -= self.gained[i, depth + 1]
        self.gained[i, depth] += self.gained[i, depth + 1]
        self.won[i, depth] += success
        # Rules preserve the value: what a child did is kept whether or not it came to an end. Siblings' parts keep their places
        # until the last one has returned: only then is the whole evaluated again.
        tokens, part = self.tokens(i, depth), self.tokens(i, depth + 1)
        at = int(self.places[i, depth, k])
        end = analyse(tokens)[at].end
        if len(tokens) + len(part) - (end - at) <= self.expression.shape[2]:
            tokens = tokens[:at] + part + tokens[end:]
            self.put(i, depth, tokens)
            self.places[i, depth, k + 1 : group] += len(part) - (end - at)
        if k + 1 == group:
            self.gather(i, depth, tokens)
            spawn = int(stack.frames[i, depth]["spawning"]) - len(MOVES) - len(self.rules)
            self.results[i, depth, spawn] = 1 if self.won[i, depth] == group else -1

    def gather(self, i: int, depth: int, raw: bytes) -> None:
        """Evaluate the expression with all children's parts in it; if it has no value, the children's work is undone."""
        before = self.before[i, depth, : self.before_length[i, depth]].tobytes()
        cursor = int(self.cursor[i, depth])
        self.put(i, depth, before)
        self.arrive(i, depth, cursor)
        try:
            new = canonical(raw[cursor : analyse(raw)[cursor].end])
        except UnrepresentableError:
            return
        if not self.replace(i, depth, before, cursor, new):
            self.pay(i, depth, top(before).obstacles)

    def observe(self, stack: CallStack, obs: Observation, i: int) -> None:
        """Write the window and what else the frame sees of the cursor."""
        depth = stack.episodes[i]["depth"]
        tokens = self.tokens(i, depth)
        nodes = analyse(tokens)
        node = nodes[int(self.cursor[i, depth])]
        task = obs.task[i]
        task[:] = 0
        task[self.form[i, depth]] = 1
        at = len(FORMS)
        window = int(self.config[0])
        last = node.parent < 0 or node.order + 1 == len(nodes[node.parent].children)
        fits = node.end - node.start <= window
        task[at : at + STANDING] = node.parent < 0, last, fits, node.expanded, node.solid, node.atom
        at += STANDING
        task[at + (0 if node.parent < 0 else operator_class(tokens[node.parent]))] = 1
        at += OPERATORS
        for k in range(FLAGS):
            task[at + k] = node.flags >> k & 1
        at += FLAGS
        task[at + min(len(node.parts), MOST_PARTS)] = 1
        at += MOST_PARTS + 1
        for k, start in enumerate(node.children[:MOST_OPERANDS]):
            operand = nodes[start]
            task[at + k * (OPERATORS + 2) + operator_class(tokens[start])] = 1
            task[at + k * (OPERATORS + 2) + OPERATORS] = operand.expanded
            task[at + k * (OPERATORS + 2) + OPERATORS + 1] = len(operand.parts) > 0 or (operand.solid and not operand.expanded)
        at += MOST_OPERANDS * (OPERATORS + 2)
        task[at : at + len(self.rules)] = self.tried[i, depth]
        at += len(self.rules)
        seen = self.expression[i, depth, node.start : min(node.end, node.start + window)]
        channels = CHANNEL_OF[seen]
        rows = np.arange(len(channels))
        task[at + rows * CHANNELS + channels] = 1
        obs.results[i] = self.results[i, depth]

    def progress(self, stack: CallStack, i: int) -> float:
        """Obstacles removed, each paid once, as a share of the task's; all of it once the task is done."""
        depth = int(stack.episodes[i]["depth"])
        if depth == 0 and has_form(int(self.form[i, 0]), self.tokens(i, 0)):
            return 1.0
        return float(self.gained[i, : depth + 1].sum()) / float(self.total[i] + 1)


class RewriteDomain(Domain):
    """Expressions to be brought to a form by named rules.

    Args:
        levels: layers under which a generated task hides its value, 1 to 6.
        goal: the form that is asked for: "expanded", "factored", "fraction" or "derivative_free", or "mixed": any that the task does not
            have yet (of generated tasks, one of the first three).
        window: most tokens of the sub-expression at the cursor that are seen and that a rule is applied to, 16 to 96.
        capacity: most tokens of an expression, 64 to 512, at least twice the window.
        rules: names of the rules that are actions; None takes all but the slow ones (`rao_envs.rewrite.rules.RULES`).
        expressions: your own, instead of generated ones: a list of strings, or the path of a file with one a line.

    Raises:
        ValueError: a value out of range, or an unknown goal or rule.
        rao_envs.algebra.parser.ExpressionError: an expression that cannot be used, with the column at fault.
    """

    spawns = (*(f"spawn_{form}" for form in FORMS), "spawn_all")
    has_dense = True
    shared = frozenset({"config", "rules", "forms", "given", "given_length"})
    per_frame = frozenset(
        {
            *("expression", "length", "before", "before_length", "form", "cursor", "tried", "results"),
            *("places", "which", "won", "low", "surplus", "gained"),
        }
    )

    def __init__(
        self,
        levels: int = 3,
        *,
        goal: str = "mixed",
        window: int = 48,
        capacity: int = 256,
        rules: Sequence[str] | None = None,
        expressions: ExpressionSource | None = None,
    ) -> None:
        self.levels = whole_number("levels", levels, 1, 6)
        self.window = whole_number("window", window, 16, 96)
        self.capacity = whole_number("capacity", capacity, 2 * self.window, 512)
        if goal != "mixed" and goal not in FORMS:
            raise ValueError(f"goal must be one of 'mixed', {', '.join(map(repr, FORMS))}, got {goal!r}")
        self.goal = goal
        self.rule_names = _checked_rules(rules)
        self.primitives = (*MOVES, *self.rule_names)
        self.name = "Rewrite"
        wanted = FORMS.index(goal) if goal in FORMS else -1
        self.given = () if expressions is None else tuple(parse_expressions(expressions, self.capacity, wanted))
        self.options = frozenset({"expression"} if self.given else ())
        self.max_depth = 8 if self.given else 2 * self.levels
        self.budget = max(20 * self.levels, max((4 * len(tokens) for tokens in self.given), default=0))
        self.task_space = spaces.Box(0, 1, (self._window_at() + CHANNELS * self.window,), np.int8)
        self.results_space = spaces.Box(-1, 1, (len(self.spawns),), np.int8)

    def _window_at(self) -> int:
        """Where the window begins in a task observation."""
        return len(FORMS) + STANDING + OPERATORS + FLAGS + MOST_PARTS + 1 + MOST_OPERANDS * (OPERATORS + 2) + len(self.rule_names)

    def windows(self, task: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
        """The tokens in `task` observations (..., size): (..., window, CHANNELS), one-hot, all 0 beyond the end."""
        return task[..., self._window_at() :].reshape(*task.shape[:-1], self.window, CHANNELS)

    def allocate(self, n: int, *, dense: bool) -> RewriteState:
        """Room for `n` expressions and those of their frames."""
        levels = self.max_depth + 1
        indices = {rule.name: k for k, rule in enumerate(RULES)}
        if self.goal != "mixed":
            forms = [FORMS.index(self.goal)]
        else:
            forms = [form for form in range(len(FORMS)) if self.given or form != DERIVATIVE_FREE]
        given = np.zeros((len(self.given), self.capacity), np.uint8)
        for k, tokens in enumerate(self.given):
            given[k, : len(tokens)] = np.frombuffer(tokens, np.uint8)
        state = RewriteState(
            config=np.array([self.window, self.levels, self.budget], np.int64),
            rules=np.array([indices[name] for name in self.rule_names], np.int8),
            forms=np.array(forms, np.int8),
            given=given,
            given_length=np.array([len(tokens) for tokens in self.given], np.int16),
            choice=np.full(n, -1, np.int32),
            total=np.zeros(n, np.int32),
            expression=np.zeros((n, levels, self.capacity), np.uint8),
            length=np.ones((n, levels), np.int16),
            before=np.zeros((n, levels, self.capacity), np.uint8),
            before_length=np.zeros((n, levels), np.int16),
            form=np.zeros((n, levels), np.int8),
            cursor=np.zeros((n, levels), np.int16),
            tried=np.zeros((n, levels, len(self.rule_names)), np.int8),
            results=np.zeros((n, levels, len(self.spawns)), np.int8),
            places=np.zeros((n, levels, FAN), np.int16),
            which=np.zeros((n, levels), np.int8),
            won=np.zeros((n, levels), np.int8),
            low=np.zeros((n, levels), np.int32),
            surplus=np.zeros((n, levels), np.int32),
            gained=np.zeros((n, levels), np.int32),
        )
        state.expression[:, :, 0] = INTEGER
        return state

    def prepare(self, state: RewriteState, i: int, options: Mapping[str, Any]) -> None:
        """`options={"expression": k}` picks the k-th given expression; without it, any."""
        choice = options.get("expression")
        state.choice[i] = -1 if choice is None else whole_number("expression", choice, 0, len(self.given) - 1)

    def question(self, state: RewriteState, i: int, depth: int) -> str:
        """What stands there now, as far as it fits."""
        text = to_text(state.tokens(i, depth))
        return text if len(text) <= 40 else f"{text[:37]}..."


def _checked_rules(rules: Sequence[str] | None) -> tuple[str, ...]:
    if rules is None:
        return DEFAULT_RULES
    names = [rule.name for rule in RULES]
    given: Any = rules
    if isinstance(given, str) or not isinstance(given, Sequence) or not given or len(set(given)) != len(given) or set(given) - set(names):
        raise ValueError(f"rules must be different names out of {', '.join(names)}, got {rules!r}")
    return tuple(given)


assert (EXP, LOG, TRIGONOMETRIC) == (8, 9, (5, 6, 7)), "the channels are the tokens in their order"
