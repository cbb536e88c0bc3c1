"""A stranger's ONNX file: run only if it is nothing but a network that fits, and refused with a reason otherwise."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rao_envs
from rao_leaderboard import onnx_agent
from rao_leaderboard.onnx_agent import OnnxAgent, OnnxModelError

onnx = pytest.importorskip("onnx")
ENV = "RAO/Maze-5x5-v0"
ACTIONS = 9


def model(bias: Any = None, change: Callable[[Any], None] | None = None, **description: Any) -> bytes:
    """The smallest policy of the smallest maze: the action whose bias is highest, among those allowed."""
    from onnx import TensorProto, helper, numpy_helper

    bias = np.arange(ACTIONS, dtype=np.float32) if bias is None else bias
    nodes = [
        helper.make_node("Cast", ["action_mask"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Sub", ["mask", "one"], ["off"]),
        helper.make_node("Mul", ["off", "much"], ["penalty"]),
        helper.make_node("Add", ["penalty", "bias"], ["logits"]),
        helper.make_node("ArgMax", ["logits"], ["action"], axis=1, keepdims=0),
        helper.make_node("LogSoftmax", ["logits"], ["log_probs"], axis=1),
    ]
    constants = {"one": np.float32(1), "much": np.float32(1e4), "bias": bias}
    graph = helper.make_graph(
        nodes,
        "policy",
        [helper.make_tensor_value_info("action_mask", TensorProto.INT8, ["n", ACTIONS])],
        [
            helper.make_tensor_value_info("action", TensorProto.INT64, ["n"]),
            helper.make_tensor_value_info("log_probs", TensorProto.FLOAT, ["n", ACTIONS]),
        ],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    described = {
        "format": "rao-onnx-1",
        "policy": "Smallest",
        "n_actions": ACTIONS,
        "masked": True,
        "observation": {"action_mask": {"kind": "MultiBinary", "shape": [ACTIONS], "dtype": "int8"}},
        "plain": False,
        "lstm": None,
        "transfer": None,
    } | description
    helper.set_model_props(made, {"rao": json.dumps(described)})
    if change is not None:
        change(made)
    content: bytes = made.SerializeToString()
    return content


def outside(made: Any) -> None:
    tensor = made.graph.initializer[2]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../../../../etc/passwd")


def loop(made: Any) -> None:
    body = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["c"], ["d"])], "body", [], [])
    made.graph.node.append(onnx.helper.make_node("Loop", ["x"], ["y"], body=body))


def hidden_graph(made: Any) -> None:
    made.graph.node[0].attribute.append(onnx.helper.make_attribute("body", onnx.helper.make_graph([], "g", [], [])))


def foreign(made: Any) -> None:
    made.graph.node[0].domain = "com.example"


def function(made: Any) -> None:
    made.functions.add(name="f", domain="d")


def random_numbers(made: Any) -> None:
    made.graph.node[0].op_type = "RandomNormal"


def huge(made: Any) -> None:
    made.graph.initializer[2].dims[:] = [2**20, 2**20]


def many(made: Any) -> None:
    for k in range(onnx_agent.MAX_NODES):
        made.graph.node.append(onnx.helper.make_node("Identity", ["logits"], [f"copy{k}"]))


def new_operators(made: Any) -> None:
    made.opset_import[0].version = 99


def test_a_sound_one_acts() -> None:
    agent = OnnxAgent(model())
    evaluation = rao_envs.evaluate(agent, ENV, 20, progress=False)
    assert all((episode.actions >= 0).all() for episode in evaluation.episodes)
    sampled = rao_envs.evaluate(agent, ENV, 20, deterministic=False, progress=False)
    assert sampled.episodes != evaluation.episodes
    assert sampled.episodes == rao_envs.evaluate(agent, ENV, 20, deterministic=False, progress=False, batch_size=3).episodes


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (outside, "lies in another file"),
        (loop, "operator Loop, which no policy needs"),
        (hidden_graph, "holds a graph of its own"),
        (foreign, "operator com.example.Cast"),
        (function, "functions or training steps"),
        (random_numbers, "operator RandomNormal"),
        (huge, "more than 33554432 elements"),
        (many, "more than 4000 nodes"),
        (new_operators, "up to ai.onnx 22 are allowed"),
        (lambda made: made.ClearField("metadata_props"), 'no key "rao"'),
        (lambda made: made.metadata_props.add(key="rao", value="{}"), 'no key "rao"'),
        (lambda made: made.graph.node.pop(), "onnxruntime cannot load it"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_no_policy_needs_is_refused_before_it_runs(
    change: Callable[[Any], None], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "onnxruntime" not in message:
        import onnxruntime

        monkeypatch.setattr(onnxruntime, "InferenceSession", lambda *_, **__: pytest.fail("it was run"))
    with pytest.raises(OnnxModelError, match=message):
        OnnxAgent(model(change=change))


@pytest.mark.parametrize(
    "description",
    [
        {"format": "rao-onnx-2"},
        {"n_actions": 0},
        {"n_actions": "9"},
        {"observation": {"action_mask": {"kind": "Text", "shape": [9], "dtype": "int8"}}},
        {"observation": {"action_mask": {"kind": "Box", "shape": [-1], "dtype": "int8"}}},
        {"observation": {"action_mask": {"kind": "Box", "shape": [9], "dtype": "object"}}},
        {"more": 1},
        {"lstm": [1, 2]},
        {"transfer": {"mode": "telepathy", "dim": 1, "slots": 1, "memory": 0, "back": True}},
    ],
    ids=str,
)
def test_wrong_metadata(description: dict[str, Any]) -> None:
    with pytest.raises(OnnxModelError, match="metadata are wrong"):
        OnnxAgent(model(**description))


def test_what_does_not_do_what_it_says() -> None:
    with pytest.raises(OnnxModelError, match="no numbers"):
        rao_envs.evaluate(OnnxAgent(model(bias=np.full(ACTIONS, np.nan, np.float32))), ENV, 2, progress=False)
    with pytest.raises(ValueError, match="acts in Discrete"):
        rao_envs.evaluate(OnnxAgent(model(n_actions=4)), ENV, 2, progress=False)
    agent = OnnxAgent(model(observation={"action_mask": {"kind": "MultiBinary", "shape": [3], "dtype": "int8"}}))
    with pytest.raises(ValueError, match="was made for other observations"):
        rao_envs.evaluate(agent, ENV, 2, progress=False)


def rename(made: Any) -> None:
    made.graph.input[0].name = "secret"
    made.graph.node[0].input[0] = "secret"


def test_the_inputs_it_asks_for_must_be_known() -> None:
    with pytest.raises(OnnxModelError, match="asks for secret"):
        OnnxAgent(model(change=rename))


def test_any_bytes_are_refused_and_none_crash() -> None:
    sound = model()
    rng = np.random.default_rng(0)
    refused = 0
    for k in range(300):
        content = bytearray(sound)
        if k % 3 == 0:
            content = content[: int(rng.integers(len(content)))]
        else:
            for place in rng.integers(len(content), size=1 + k % 5):
                content[place] = int(rng.integers(256))
        try:
            rao_envs.evaluate(OnnxAgent(bytes(content)), ENV, 1, progress=False)
        except ValueError:  # OnnxModelError, or it does not fit the environment
            refused += 1
    assert refused > 150
    with pytest.raises(OnnxModelError, match="no ONNX file"):
        OnnxAgent(b"PK\x03\x04 not onnx")
    with pytest.raises(OnnxModelError, match="more than"):
        OnnxAgent(b"\x00" * (onnx_agent.MAX_BYTES + 1))


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_without_the_packages_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch, package: str, tmp_path: Path) -> None:
    content = model()
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=r"rao-envs\[onnx\]"):
        OnnxAgent(content)
