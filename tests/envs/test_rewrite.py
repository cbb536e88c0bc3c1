"""The Rewrite family: token strings, named rules, forms, tasks that can be solved, people's own expressions, frames, pictures."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import sympy

import rao_envs
from rao_envs.algebra.parser import ExpressionError
from rao_envs.core.episodes import Evaluation
from rao_envs.rewrite import bridge, rules, tokens
from rao_envs.rewrite.domain import CHANNEL_OF, CHANNELS, RewriteDomain
from rao_envs.rewrite.env import RewriteEnv, RewriteVectorEnv
from rao_envs.rewrite.generator import draw_task
from rao_envs.rewrite.parser import MAX_LENGTH, parse_expression, parse_expressions
from rao_envs.rewrite.plan import FAN, Limits
from rao_envs.rewrite.printing import print_expression, to_text
from rao_envs.rewrite.reference import MonolithicSolver, RecursiveSolver
from rao_envs.rewrite.viewer import RewriteFrameView, RewriteView, RewriteViewer, draw_ansi, wrap

CAPACITY = 256
POINT = dict(zip(bridge.symbols(), (sympy.Rational(13, 10), sympy.Rational(7, 9), sympy.Rational(5, 3)), strict=True))


def read(text: str) -> bytes:
    return parse_expression(text, CAPACITY)


def value(expression: bytes) -> complex:
    """The expression's value at a point with positive coordinates."""
    return complex(bridge.decode(expression).doit().subs(POINT).evalf(30, chop=True))


def play(env: RewriteEnv, seed: int, rng: np.random.Generator, steps: int) -> list[tuple[int, bytes, int, bytes, int]]:
    """Random play: (frame, expression) before each action, the action, (expression, frame) after."""
    _, info = env.reset(seed=seed)
    result = []
    for _ in range(steps):
        frame, before = info["frame_id"], env.batch.state.tokens(0, info["depth"])
        action = int(rng.choice(np.flatnonzero(env.action_masks())))
        *_, terminated, truncated, info = env.step(action)
        result.append((frame, before, action, env.batch.state.tokens(0, info["depth"]), info["frame_id"]))
        if terminated or truncated:
            break
    return result


# -- Token strings ------------------------------------------------------------------------------------------------------------------


def test_whatever_play_makes_is_canonical_and_reads_back_from_text() -> None:
    env, rng = RewriteEnv(), np.random.default_rng(0)
    seen = {step[3] for seed in range(12) for step in play(env, seed, rng, 60)}
    assert len(seen) > 80
    for expression in seen:
        assert bridge.encode(bridge.decode(expression)) == expression
        assert read(to_text(expression)) == expression
        printed = print_expression(expression)
        assert set(printed.spans) == set(tokens.analyse(expression))
        assert printed.spans[0] == (0, len(printed.text))


@pytest.mark.parametrize("number", [0, 1, -1, 16, 17, -17, 9999, -9999])
def test_integers_are_one_token_or_a_sign_and_four_digits(number: int) -> None:
    written = tokens.integer_tokens(number)
    assert tokens.read_integer(written, 0) == (number, len(written))
    assert len(written) == (1 if abs(number) <= tokens.SMALL else 1 + tokens.DIGITS)
    assert bridge.decode(written) == number


def test_what_has_no_tokens_is_refused() -> None:
    x = bridge.symbols()[0]
    for expression in (sympy.I, sympy.zoo, sympy.pi, sympy.Integer(10_000), sympy.Symbol("w"), x**13, sympy.gamma(x), sympy.Float(0.5)):
        with pytest.raises(tokens.UnrepresentableError):
            bridge.encode(expression)


def test_operands_stand_in_the_order_of_their_tokens_whatever_sympy_does() -> None:
    for node in tokens.analyse(read("z*y + x^2*sin(y) + 3 + y/x - log(z)")).values():
        expression = read("z*y + x^2*sin(y) + 3 + y/x - log(z)")
        if expression[node.start] in (tokens.ADD, tokens.MUL):
            operands = [tokens.sub_expression(expression, start) for start in node.children]
            assert operands == sorted(operands)


@pytest.mark.parametrize(
    ("text", "expanded", "parts"),
    [
        ("3*x^2*y - 1/2", True, []),
        ("x", True, []),
        ("(x + 1)*(y - 2) + 3", False, ["(x + 1)*(y - 2)"]),
        ("log((x + 1)^2 - x)", False, ["(x + 1)^2 - x"]),
        ("(x^2 - 1)/(x - 1)", False, []),
        ("((x + 1)*x - 1)/((x - 1)^2 + x)", False, ["(x + 1)*x - 1", "(x - 1)^2 + x"]),
        ("d/dx(x*y)*y + 2", False, ["d/dx(x*y)*y"]),
        ("x^y + x", False, []),
    ],
)
def test_structure_says_what_is_expanded_and_where_there_is_work_below(text: str, expanded: bool, parts: list[str]) -> None:
    expression = read(text)
    node = tokens.top(expression)
    assert node.expanded == expanded == (node.obstacles == 0)
    assert sorted(tokens.sub_expression(expression, start) for start in node.parts) == sorted(map(read, parts))


# -- Rules --------------------------------------------------------------------------------------------------------------------------

EXAMPLES = {
    "expand": ("(x + 1)*(x - 1) + 2", "x^2 + 1"),
    "factor": ("x^2 - 1", "(x - 1)*(x + 1)"),
    "collect": ("x*y + x*z + 1", "x*(y + z) + 1"),
    "cancel": ("(x^2 - 1)/(x - 1)", "x + 1"),
    "together": ("x/y + 1/x", "(x^2 + y)/(x*y)"),
    "apart": ("1/(x^2 - 1)", "1/2/(x - 1) - 1/2/(x + 1)"),
    "diff": ("d/dx(x^2*y)", "2*x*y"),
    "pythagoras": ("3*sin(x + 2)^2 + 3*cos(x + 2)^2 + y", "y + 3"),
    "expand_trig": ("sin(x + y)", "sin(x)*cos(y) + cos(x)*sin(y)"),
    "product_to_sum": ("2*sin(x)*cos(x)", "sin(2*x)"),
    "expand_log": ("log(x^2*y)", "2*log(x) + log(y)"),
    "logcombine": ("2*log(x) + log(y)", "log(x^2*y)"),
    "expand_power": ("(x*y)^z", "x^z*y^z"),
    "powsimp": ("x^z*y^z", "(x*y)^z"),
    "trigsimp": ("sin(x)^2 + cos(x)^2 + x", "x + 1"),
    "simplify": ("(x^2 - 1)/(x - 1)", "x + 1"),
}


@pytest.mark.parametrize("name", [rule.name for rule in rules.RULES])
def test_every_rule_does_what_it_says(name: str) -> None:
    before, after = EXAMPLES[name]
    assert rules.apply(name, read(before)) == read(after)
    assert rules.apply(name, read("x")) is None
    assert rules.BY_NAME[name].what


def test_rules_preserve_the_value() -> None:
    env, rng = RewriteEnv(), np.random.default_rng(1)
    rewritten = 0
    for seed in range(10):
        for frame, before, action, after, new_frame in play(env, seed, rng, 50):
            if frame == new_frame and 3 <= action < 3 + len(rules.DEFAULT_RULES) and before != after:
                rewritten += 1
                assert value(after) == pytest.approx(value(before), rel=1e-9), (to_text(before), env.action_names[action], to_text(after))
    assert rewritten > 30


def test_rules_refuse_what_would_grow_without_calling_sympy() -> None:
    huge = read("(x + y + z + 1)^9*(x - y)^7")
    fractions = read("1/(x+y+z+1) + 1/(x+2*y+3*z) + 1/(x-y+z-2) + 1/(x-z+y*x+7)")
    start = time.process_time()
    for name in rules.DEFAULT_RULES:
        assert rules.apply(name, huge) is None
        assert rules.apply(name, fractions) is None or name not in ("cancel", "apart")
    assert not rules.has_form(rules.FACTORED, read("(x^12 + y^12 + z^12 + 1)^12*(x + y + z + 1)^12"))
    assert time.process_time() - start < 2


def test_rules_are_remembered_and_forgetting_changes_nothing() -> None:
    expression = read("(x + 1)*(x - 1) + 2")
    first = rules.apply("expand", expression)
    hits = rules.apply.cache_info().hits
    assert rules.apply("expand", expression) == first
    assert rules.apply.cache_info().hits == hits + 1
    for cached in (rules.apply, rules.has_form, bridge.decode, bridge.put_back, bridge.canonical, tokens.analyse):
        assert cached.cache_info().maxsize is not None  # bounded
        cached.cache_clear()
    assert rules.apply("expand", expression) == first


def test_slow_rules_are_actions_only_on_request() -> None:
    slow = {rule.name for rule in rules.RULES if rule.slow}
    assert slow == {"trigsimp", "simplify"}
    assert not slow & set(RewriteDomain().primitives)
    env = RewriteEnv(rules=["simplify", "diff"], expressions=["d/dx(x*(x + 1)^2) - x^3*y/x"], goal="expanded")
    assert env.action_names[:5] == ("down", "next", "up", "simplify", "diff")
    env.reset(seed=0)
    _, _, terminated, _, _ = env.step(env.action_names.index("simplify"))
    assert env.goal == "expanded" and not terminated


def test_rules_may_be_given_in_any_order_and_nothing_else() -> None:
    for bad in ([], "expand", ["expand", "expand"], ["sympify"], None.__class__):
        with pytest.raises(ValueError, match="rules must be different names out of expand, factor"):
            RewriteDomain(rules=bad)  # type: ignore[arg-type]


# -- Forms --------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "forms"),
    [
        ("x^2 - 1", ["expanded", "fraction", "derivative_free"]),
        ("(x - 1)*(x + 1)", ["factored", "derivative_free"]),
        ("2*x + 2", ["expanded", "factored", "fraction", "derivative_free"]),
        ("3*x*y^2", ["expanded", "factored", "fraction", "derivative_free"]),
        ("5*(x - 1)^2*(x*y + 1)", ["factored", "derivative_free"]),
        ("(x + 1)/(x - 2)", ["fraction", "derivative_free"]),
        ("(y + 1)/x^2", ["fraction", "derivative_free"]),
        ("(x^2 - 1)/(x - 1)", ["derivative_free"]),
        ("x + 1/y", ["derivative_free"]),
        ("1/((x + 1)*(y + 2))", ["derivative_free"]),
        ("sin(x)", ["derivative_free"]),
        ("x^y", ["derivative_free"]),
        ("d/dx(x^2)", []),
    ],
)
def test_forms(text: str, forms: list[str]) -> None:
    assert [form for k, form in enumerate(rules.FORMS) if rules.has_form(k, read(text))] == forms


# -- Tasks and solvers --------------------------------------------------------------------------------------------------------------


def solve(env: RewriteEnv, agent: Any, seed: int) -> dict[str, Any]:
    observation, info = env.reset(seed=seed)
    over = False
    while not over:
        observation, _, terminated, truncated, info = env.step(agent(observation, env.action_masks()))
        over = terminated or truncated
    return info


def success(result: Evaluation) -> float:
    return float(np.mean([episode.success for episode in result.episodes]))


def test_every_task_can_be_solved_and_the_script_takes_the_steps_it_promised() -> None:
    env, agent = RewriteEnv(), RecursiveSolver()
    limits = Limits(env.domain.window, env.domain.capacity, env.domain.budget // 2, env.domain.max_depth)
    forms = set()
    for seed in range(40):
        task = draw_task(np.array([seed], np.uint64), env.domain.levels, (0, 1, 2), limits)
        env.reset(seed=seed)
        assert bridge.encode(env.expression) == task.tokens and env.goal == rules.FORMS[task.form]
        assert not rules.has_form(task.form, task.tokens)
        assert len(task.tokens) > env.domain.window, "one stroke at the root must not do"
        info = solve(env, agent, seed)
        assert info["is_success"] and info["tree"]["steps"] == task.outcome.steps and info["tree"]["deepest"] == task.outcome.depth
        end = env.batch.state.tokens(0, 0)
        assert end == task.outcome.tokens and rules.has_form(task.form, end)
        assert value(end) == pytest.approx(value(task.tokens), rel=1e-9)
        forms.add(env.goal)
    assert forms == {"expanded", "factored", "fraction"}


@pytest.mark.parametrize("levels", [1, 2, 4])
def test_other_numbers_of_layers_are_solved_too(levels: int) -> None:
    result = rao_envs.evaluate(RecursiveSolver(), "RAO/Rewrite-v0", seeds=6, levels=levels)
    assert success(result) == 1.0


def test_solvers_show_what_the_context_allows() -> None:
    recursive = rao_envs.evaluate(RecursiveSolver(), "RAO/Rewrite-v0", seeds=30)
    monolithic = rao_envs.evaluate(MonolithicSolver(), "RAO/Rewrite-v0", seeds=30, spawn=False)
    assert success(recursive) == 1.0
    assert 0.8 <= success(monolithic) <= 1.0
    with pytest.raises(ValueError, match="not observations of Rewrite"):
        RecursiveSolver(("expand",))({"task": np.zeros(9), "results": np.zeros(5)}, np.ones(22, bool))


def test_goals_can_be_chosen() -> None:
    for goal in rules.FORMS:
        env = RewriteEnv(goal=goal, levels=2)
        for seed in range(3):
            assert solve(env, RecursiveSolver(), seed)["is_success"]
    with pytest.raises(ValueError, match="goal must be one of 'mixed', 'expanded'"):
        RewriteDomain(goal="simple")
    with pytest.raises(ValueError, match=r"capacity must be an integer in \[96, 512\]"):
        RewriteDomain(capacity=95)


# -- Determinism --------------------------------------------------------------------------------------------------------------------

DIGEST = """
import hashlib, numpy as np
from rao_envs.rewrite.env import RewriteEnv
env, rng, digest = RewriteEnv(feedback="dense"), np.random.default_rng(3), hashlib.sha256()
for seed in range(4):
    observation, info = env.reset(seed=seed)
    for _ in range(40):
        action = int(rng.choice(np.flatnonzero(env.action_masks())))
        observation, reward, terminated, truncated, info = env.step(action)
        for array in observation.values():
            digest.update(array.tobytes())
        digest.update(repr((action, reward, info["dense_reward"], info["returned"])).encode())
        if terminated or truncated:
            break
"""


@pytest.mark.parametrize("hash_seed", ["0", "424242"])
def test_neither_hash_seeds_nor_what_is_cached_matters(hash_seed: str) -> None:
    here: dict[str, Any] = {}
    exec(DIGEST, here)
    result = subprocess.run(
        [sys.executable, "-c", DIGEST + "\nprint(digest.hexdigest())"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        cwd=Path(rao_envs.__file__).parent.parent,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == here["digest"].hexdigest()


def test_importing_and_making_do_not_import_sympy() -> None:
    code = "import sys, gymnasium, rao_envs; gymnasium.make('RAO/Rewrite-v0', disable_env_checker=True); print('sympy' in sys.modules)"
    where = Path(rao_envs.__file__).parent.parent
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=where, check=True)
    assert result.stdout.strip() == "False"


# -- People's own expressions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2*(x + 1)", "2*x + 2"),
        ("-x^2", "-x^2"),
        ("(-x)^2", "x^2"),
        ("2^-1*x", "1/2*x"),
        ("x**2^3", "x^8"),
        ("--x - -y", "x + y"),
        ("x/y/z", "x/y/z"),
        ("sqrt(x*y)", "(x*y)^(1/2)"),
        ("d/dx(x*y)", "d/dx(x*y)"),
        ("d / d x (exp(x))", "d/dx(exp(x))"),
        ("007*x", "7*x"),
    ],
)
def test_the_grammar(text: str, expected: str) -> None:
    assert to_text(read(text)) == expected


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("", 1, "the expression is empty"),
        ("x +", 4, "ends too early"),
        ("(x + 1", 7, "opened in column 1 is not closed"),
        ("x + 1)", 6, r"unexpected '\)'"),
        ("2x", 2, "unexpected 'x'"),
        ("x(y)", 2, r"a product needs its \*"),
        ("foo(x)", 1, "unknown name 'foo'"),
        ("__import__('os')", 1, "unknown name '__import__'"),
        ("sin x", 5, "sin needs parentheses"),
        ("d/dw(x)", 1, "derivatives are by x, y, z, not by 'w'"),
        ("x^13", 3, "exponents go up to 12"),
        ("3 + 12345", 5, "integers have at most 4 digits"),
        ("1.5*x", 2, r"unexpected '\.'"),
        ("x $ 1", 3, r"unexpected '\$'"),
        ("(" * 41 + "x" + ")" * 41, 41, "more than 40"),
        ("x" + "^x" * 50, 83, "more than 40"),
    ],
)
def test_what_cannot_be_read_is_pointed_at(text: str, column: int, message: str) -> None:
    with pytest.raises(ExpressionError, match=f"column {column}: .*{message}") as error:
        read(text)
    lines = str(error.value).splitlines()
    assert error.value.column == column
    assert lines[-1].startswith("allowed: integers")
    assert lines[2].index("^") - 2 == min(column - 1, 50)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1/0", "cannot be held"),
        ("sqrt(-1)", "cannot be held"),
        ("((9999^12)^12)^12", "a number is too large"),
        ("(" * 30 + "x - x + 9999" + ")^12" * 30, "a number is too large"),
        ("(((x + 1)^12)^12)^12", "exponents go up to 12"),
        ("x" * (MAX_LENGTH + 1), "at most 2000 characters"),
        (" + ".join(f"sin({k}*x)" for k in range(1, 99)), "tokens; capacity=256"),
    ],
)
def test_bombs_do_not_go_off(text: str, message: str) -> None:
    start = time.process_time()
    with pytest.raises(ExpressionError, match=message):
        read(text)
    assert time.process_time() - start < 2


def test_expressions_come_from_lists_and_files(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("# two of them\n\nd/dx(x^2)*y  # one\n(x^2 - 1)/(x - 1)\n")
    assert parse_expressions(path, CAPACITY, 0) == [read("d/dx(x^2)*y"), read("(x^2-1)/(x-1)")]
    env = gym.make("RAO/Rewrite-v0", expressions=str(path), goal="expanded").unwrapped
    assert isinstance(env, RewriteEnv)
    for k, text in enumerate(("d/dx(x^2)*y", "(x^2 - 1)/(x - 1)")):
        env.reset(seed=0, options={"expression": k})
        assert bridge.encode(env.expression) == read(text)
        assert solve(env, RecursiveSolver(), k)["is_success"]
    assert len({env.reset()[0]["task"].tobytes() for _ in range(12)}) == 2
    with pytest.raises(ValueError, match=r"expression must be an integer in \[0, 1\]"):
        env.reset(options={"expression": 2})
    path.write_text("x*(x+1)\nx +\n")
    for source, message in (
        (path, "line 2: column 4: the expression ends too early"),
        (tmp_path / "none.txt", "is not a file; for one expression pass a list"),
        ([], "give 1 to 10000 expressions, got 0"),
        (["x + 1"], "expression 1: there is nothing to do: it is expanded already"),
        ([3], "an expression must be a string, got int"),
        (7, "a sequence of strings or the path of a file, got int"),
    ):
        with pytest.raises(ExpressionError, match=message):
            parse_expressions(source, CAPACITY, 0)  # type: ignore[arg-type]
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ExpressionError, match="cannot be read as UTF-8"):
        parse_expressions(path, CAPACITY, 0)


# -- Frames -------------------------------------------------------------------------------------------------------------------------


def env_on(text: str, goal: str = "expanded", **kwargs: Any) -> RewriteEnv:
    env = RewriteEnv(expressions=[text], goal=goal, **kwargs)
    env.reset(seed=0)
    return env


def act(env: RewriteEnv, *names: str) -> dict[str, Any]:
    info: dict[str, Any] = {}
    for name in names:
        action = env.action_names.index(name)
        assert env.action_masks()[action], f"{name} is not allowed on {env.expression}"
        *_, info = env.step(action)
    return info


def allowed(env: RewriteEnv) -> set[str]:
    return {name for name, may in zip(env.action_names, env.action_masks(), strict=True) if may}


def test_a_child_rewrites_its_part_and_the_result_takes_the_parts_place() -> None:
    env = env_on("((x + 1)^2 - x^2)/(2*x + 1) + d/dx(x*y)*y")
    assert {"spawn_all", "down"} <= allowed(env)
    assert not allowed(env) & {"next", "up", "spawn_expanded", "spawn_factored"}, "a frame cannot hand its own task on"
    assert act(env, "spawn_all")["depth"] == 1
    while env.batch.stack.episodes["depth"][0]:
        name = next(n for n in ("diff", "expand", "spawn_all") if n in allowed(env))
        act(env, name)
    assert bridge.encode(env.expression) == read("y^2 + 1"), "a quotient of equals is gone as soon as it is seen"


def test_what_a_failed_child_did_is_kept() -> None:
    env = env_on("(x + 1)*(y + 2) + d/dx(x^2 + y)*exp(y)", budget=30)
    start = value(env.batch.state.tokens(0, 0))
    act(env, "down")
    while "spawn_fraction" not in allowed(env) or "Derivative" not in str(bridge.decode(at_cursor(env))):
        act(env, "next")
    act(env, "spawn_fraction", "down")
    while "diff" not in allowed(env):
        act(env, "next")
    info = act(env, "diff")
    while info["depth"]:
        info = act(env, "down" if "down" in allowed(env) else "up")
    assert not info["returned"][0]["success"]
    assert bridge.encode(env.expression) == read("(x + 1)*(y + 2) + 2*x*exp(y)")
    assert value(env.batch.state.tokens(0, 0)) == pytest.approx(start)


def at_cursor(env: RewriteEnv) -> bytes:
    state, depth = env.batch.state, int(env.batch.stack.episodes["depth"][0])
    return tokens.sub_expression(state.tokens(0, depth), int(state.cursor[0, depth]))


def test_rules_that_did_nothing_are_marked_until_something_changes() -> None:
    env = env_on("sin(x) + (x + 1)*y")
    act(env, "pythagoras")
    assert "pythagoras" not in allowed(env)
    act(env, "down", "up")
    assert "pythagoras" in allowed(env), "marks do not survive the cursor's moves: that would be memory"


def test_rules_need_their_pattern_and_a_part_that_fits_the_window() -> None:
    env = env_on("(x + 1)^2*(y + 2) + log(x*y)*sin(x + y)^2/(x + 2*y) + d/dx(x*y)", window=32)
    assert allowed(env) == {"down", "spawn_all"}, "the whole is larger than the window"
    act(env, "down")
    for _ in range(3):
        part = at_cursor(env)
        assert ("expand_log" in allowed(env)) == (tokens.LOG in part)
        assert ("diff" in allowed(env)) == (tokens.DERIVATIVE <= part[0] < tokens.SYMBOL)
        if "next" in allowed(env):
            act(env, "next")


def test_all_parts_open_at_once_and_at_most_four() -> None:
    env = env_on(" + ".join(f"sin((x + {k})*(y - {k}))" for k in range(1, 7)))
    assert len(tokens.top(env.batch.state.tokens(0, 0)).parts) == 6
    children = env.spawn_all(env.action_names.index("spawn_all"))
    assert len(children) == FAN
    for child in children:
        child.reset()
        assert isinstance(child, RewriteEnv)
        act(child, "expand")
    _, _, _, _, info = env.join(*children)
    assert len(info["returned"]) == FAN
    assert len(tokens.top(env.batch.state.tokens(0, 0)).parts) == 2
    assert env.batch.state.results[0, 0].tolist() == [0, 0, 0, 0, 1]


def test_the_window_shows_the_tokens_at_the_cursor() -> None:
    env = RewriteEnv()
    observation, _ = env.reset(seed=1)
    for _ in range(6):
        part = at_cursor(env)[: env.domain.window]
        window = env.domain.windows(observation["task"])
        assert window.shape == (env.domain.window, CHANNELS)
        assert window.sum(axis=1).tolist() == [1] * len(part) + [0] * (env.domain.window - len(part))
        assert window.argmax(axis=1)[: len(part)].tolist() == [int(CHANNEL_OF[token]) for token in part]
        assert not (len(part) < len(at_cursor(env)) and any(env.action_masks()[3 : 3 + len(rules.DEFAULT_RULES)]))
        action = "down" if "down" in allowed(env) else "next"
        observation, *_ = env.step(env.action_names.index(action))
    assert CHANNEL_OF[1:].min() == 0 and CHANNEL_OF.max() == CHANNELS - 1


# -- Dense feedback -----------------------------------------------------------------------------------------------------------------


def test_dense_feedback_pays_every_obstacle_once() -> None:
    for spawn in (True, False):
        env = RewriteEnv(feedback="dense", spawn=spawn)
        agent = RecursiveSolver() if spawn else MonolithicSolver()
        for seed in range(8):
            observation, _ = env.reset(seed=seed)
            paid, over = 0.0, False
            while not over:
                observation, _, terminated, truncated, info = env.step(agent(observation, env.action_masks()))
                assert info["dense_reward"] >= 0
                paid += info["dense_reward"]
                over = terminated or truncated
            assert paid == pytest.approx(1.0) if info["is_success"] else paid < 1


def test_dense_feedback_cannot_be_farmed() -> None:
    """Putting obstacles back and removing them again, in one's own frame or through children, earns nothing."""
    env = env_on("sin(x + y) + d/dx(x*y)*x", feedback="dense", budget=200)
    for _ in range(4):
        for name in ("expand_trig", "product_to_sum"):
            assert act(env, name)["dense_reward"] == 0
    rng = np.random.default_rng(0)
    env = RewriteEnv(feedback="dense", budget=400)
    for seed in range(6):
        env.reset(seed=seed)
        total = 0.0
        for _ in range(200):
            *_, terminated, truncated, info = env.step(int(rng.choice(np.flatnonzero(env.action_masks()))))
            total += info["dense_reward"]
            assert info["dense_reward"] >= 0
            if terminated or truncated:
                break
        assert total <= 1 + 1e-9


# -- Pictures -----------------------------------------------------------------------------------------------------------------------


def test_text_pictures_mark_the_cursor_and_what_is_lent() -> None:
    env = env_on("((x + 1)*(y - 2) + x)^2 + d/dx(x*y)", render_mode="ansi")
    act(env, "spawn_all")
    view = env.view()
    plain = draw_ansi(view, color=False)
    assert "make it expanded" in plain and plain.count("[") == 2
    assert str(env.render()).count("\x1b[7m") == 1
    assert "Rewrite  step 1/" in plain


def test_pictures_have_the_asked_size_and_depend_on_the_snapshot_alone() -> None:
    pytest.importorskip("pygame")
    env = RewriteEnv(render_mode="rgb_array")
    env.reset(seed=0)
    view, viewer = env.view(), RewriteViewer()
    for size in ((900, 640), (300, 200), (64, 64), (1600, 700)):
        picture = viewer.draw_rgb(view, size)
        assert picture.shape == (size[1], size[0], 3) and picture.std() > 5
        np.testing.assert_array_equal(picture, RewriteViewer().draw_rgb(view, size))
    crowd = tuple(RewriteFrameView(d, "expanded", "x + 1 + " * 60 + "y", (0, 1), (4, 9)) for d in range(9))
    assert viewer.draw_rgb(RewriteView(crowd, view.episode)).shape == (640, 900, 3)
    with pytest.raises(ValueError, match="picture size"):
        viewer.draw_rgb(view, (10, 10))


def test_lines_break_at_spaces_and_lose_nothing() -> None:
    text = "aaa + bb + cccccccccccccccccc - d"
    for columns in range(1, 40):
        lines = wrap(text, columns)
        assert all(0 < end - begin <= columns for begin, end in lines)
        assert "".join(text[begin:end] for begin, end in lines).replace(" ", "") == text.replace(" ", "")


def test_vectors_have_the_family_too() -> None:
    vector = RewriteVectorEnv(3, levels=1)
    observations, _ = vector.reset(seed=5)
    assert observations["task"].shape == (3, vector.domain.task_space.shape[0])
    assert hashlib.sha256(observations["task"].tobytes()).hexdigest() != hashlib.sha256(bytes(observations["task"].nbytes)).hexdigest()
