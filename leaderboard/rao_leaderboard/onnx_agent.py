"""Acting from an ONNX file, with numpy and onnxruntime alone: what `rao verify --rerun` does with a stranger's policy.

The file is looked at before it is run: no data outside of it, no functions, control flow, loops or operators of its own, and nothing
beyond limits on size. `rao_agents.onnx_export` writes such files, and says what is in them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from pydantic import BaseModel, ConfigDict, Field, ValidationError

MAX_BYTES = 64 * 2**20
MAX_NODES = 4_000
MAX_TENSOR = 32 * 2**20
"""Elements of one constant."""

MAX_OPSET = 22
# fmt: off
OPERATORS = frozenset({
    "Abs", "Add", "And", "ArgMax", "ArgMin", "AveragePool", "BatchNormalization", "Cast", "CastLike", "Ceil", "Clip", "Concat",
    "Constant", "ConstantOfShape", "Conv", "Cos", "CumSum", "Div", "Einsum", "Elu", "Equal", "Erf", "Exp", "Expand", "Flatten",
    "Floor", "GRU", "Gather", "GatherElements", "GatherND", "Gelu", "Gemm", "GlobalAveragePool", "Greater", "GreaterOrEqual",
    "HardSigmoid", "Identity", "LSTM", "LayerNormalization", "LeakyRelu", "Less", "LessOrEqual", "Log", "LogSoftmax", "MatMul",
    "Max", "MaxPool", "Mean", "Min", "Mod", "Mul", "Neg", "NonZero", "Not", "OneHot", "Or", "PRelu", "Pad", "Pow", "RNN", "Range",
    "Reciprocal", "ReduceL2", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "Relu",
    "Reshape", "Round", "ScatterElements", "ScatterND", "Selu", "Shape", "Sigmoid", "Sign", "Sin", "Slice", "Softmax", "Softplus",
    "Split", "Sqrt", "Squeeze", "Sub", "Sum", "Tanh", "Tile", "TopK", "Transpose", "Unsqueeze", "Where", "Xor",
})
# fmt: on
"""What networks are made of. No loops, no branches, no sequences, no random numbers, nothing with a file or a domain of its own."""

MASK, PLAIN, FRAME = "action_mask", "observation", "frame"


class OnnxModelError(ValueError):
    """A file that is no policy, or does not do what it says."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


Size = Annotated[int, Field(ge=0, le=10**7)]


class Part(_Strict):
    """One array of an observation."""

    kind: Literal["Box", "MultiBinary", "Discrete"]
    shape: Annotated[list[Size], Field(max_length=4)]
    dtype: Literal["int8", "int16", "int32", "int64", "uint8", "float32", "bool"]
    n: Size | None = None

    def space(self) -> spaces.Space[Any]:
        """As a Gymnasium space; ranges are not written down."""
        if self.kind == "Discrete":
            return spaces.Discrete(self.n or 1)
        if self.kind == "MultiBinary":
            return spaces.MultiBinary(self.shape if len(self.shape) != 1 else self.shape[0])
        dtype = np.dtype(self.dtype)
        low, high = (-math.inf, math.inf) if dtype.kind == "f" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        return spaces.Box(low, high, tuple(self.shape), dtype.type)


class Transfer(_Strict):
    """Options of state transfer, `rao_agents.transfer.layout.TransferOptions`."""

    mode: Literal["none", "summary", "hidden", "attention"]
    dim: Annotated[int, Field(ge=1, le=4096)]
    slots: Annotated[int, Field(ge=1, le=1024)]
    memory: Annotated[int, Field(ge=0, le=1024)]
    back: bool


class Description(_Strict):
    """The metadata's key `rao`."""

    format: Literal["rao-onnx-1"]
    policy: Annotated[str, Field(max_length=100)]
    n_actions: Annotated[int, Field(ge=1, le=100_000)]
    masked: bool
    observation: Annotated[dict[str, Part], Field(max_length=64)]
    plain: bool
    lstm: Annotated[list[Size], Field(min_length=3, max_length=3)] | None
    transfer: Transfer | None
    shown: Annotated[dict[str, Part], Field(max_length=256)] = {}


class OnnxAgent:
    """A policy in an ONNX file, as `rao_envs.evaluate` takes it: it offers what a model that keeps its own state offers.

    Args:
        content: the file's bytes.

    Raises:
        OnnxModelError: it is no policy, or one that is not safe to run.
        ImportError: onnx or onnxruntime is missing.
    """

    stateful = True

    def __init__(self, content: bytes) -> None:
        try:
            import onnxruntime
        except ImportError as error:
            raise ImportError('acting from ONNX files needs onnx and onnxruntime: pip install "rao-envs[onnx]"') from error
        self.description = inspect_model(content)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        options.log_severity_level = 4
        options.use_deterministic_compute = True
        try:
            self.session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # its errors have no common class
            raise OnnxModelError(f"onnxruntime cannot load it: {str(error)[:200]}") from None
        described = self.description
        self.inputs = [each.name for each in self.session.get_inputs()]
        self.outputs = [each.name for each in self.session.get_outputs()]
        parts = {name: part.space() for name, part in described.observation.items()}
        self.acting_space: spaces.Space[Any] = parts[PLAIN] if described.plain else spaces.Dict(parts)
        self.observation_space = self.acting_space
        self.action_space = spaces.Discrete(described.n_actions)
        self.layout = None if described.transfer is None else _layout(described)
        missing = set(self.inputs) - self._given()
        if missing or "action" not in self.outputs:
            raise OnnxModelError(f"it asks for {', '.join(sorted(missing)) or 'nothing unknown'}, and gives {', '.join(self.outputs)}")

    def _given(self) -> set[str]:
        names = set(self.description.observation) | {MASK} | set(self.description.shown)
        return names | ({"lstm_h", "lstm_c"} if self.description.lstm else set())

    def initial_state(self, n: int) -> tuple[npt.NDArray[Any], ...]:
        """The state of n episodes that begin."""
        if self.layout is not None:
            from rao_agents.transfer.tracker import StateTracker  # noqa: TID251 - bookkeeping of frames, where there are such policies

            return StateTracker(self.layout, n).state()
        if self.description.lstm:
            layers, _, width = self.description.lstm
            return (np.zeros((n, layers, width), np.float32), np.zeros((n, layers, width), np.float32))
        return ()

    def predict(
        self,
        observation: Any,
        state: Sequence[npt.NDArray[Any]] | None = None,
        episode_start: npt.NDArray[np.bool_] | None = None,
        deterministic: bool = True,
        action_masks: npt.NDArray[np.bool_] | None = None,
    ) -> tuple[npt.NDArray[np.int64], tuple[npt.NDArray[Any], ...]]:
        """Greedy actions (n,), and the state after the step."""
        if not deterministic:
            raise ValueError("sampled actions come from action_probabilities")
        n = len(next(iter(observation.values()))) if isinstance(observation, Mapping) else len(observation)
        outputs, after = self._step(observation, self.initial_state(n) if state is None else state, action_masks)
        actions = outputs["action"]
        if actions.shape != (n,) or actions.dtype.kind != "i" or actions.min() < 0 or actions.max() >= self.description.n_actions:
            raise OnnxModelError(f"its actions are no integers in [0, {self.description.n_actions}), one for each row")
        return actions.astype(np.int64), after

    def action_probabilities(
        self, observation: Any, state: Sequence[npt.NDArray[Any]], action_masks: npt.NDArray[np.bool_]
    ) -> tuple[npt.NDArray[np.float32], tuple[npt.NDArray[Any], ...]]:
        """Probabilities (n, n_actions), and the state after the step.

        Raises:
            OnnxModelError: it has none, or some that are no numbers.
        """
        if "log_probs" not in self.outputs:
            raise OnnxModelError("it has no action probabilities to sample from: only its greedy actions can be taken")
        outputs, after = self._step(observation, state, action_masks)
        return np.exp(outputs["log_probs"]), after

    def _step(
        self, observation: Any, state: Sequence[npt.NDArray[Any]], masks: npt.NDArray[np.bool_] | None
    ) -> tuple[dict[str, npt.NDArray[Any]], tuple[npt.NDArray[Any], ...]]:
        given: dict[str, Any] = dict(observation) if isinstance(observation, Mapping) else {PLAIN: observation}
        n = len(next(iter(given.values())))
        if self.layout is not None:
            return self._transferred(given, state)
        if masks is not None:
            given[MASK] = masks
        if self.description.lstm:
            given["lstm_h"], given["lstm_c"] = (np.ascontiguousarray(part.transpose(1, 0, 2)) for part in state)
        outputs = self._run(given, n)
        after: tuple[npt.NDArray[Any], ...] = ()
        if self.description.lstm:
            after = tuple(outputs[name].transpose(1, 0, 2) for name in ("next_h", "next_c"))
        return outputs, after

    def _transferred(
        self, given: dict[str, Any], state: Sequence[npt.NDArray[Any]]
    ) -> tuple[dict[str, npt.NDArray[Any]], tuple[npt.NDArray[Any], ...]]:
        """One step of a policy whose frames hand states to each other."""
        from rao_agents.transfer.tracker import Carry, StateTracker  # noqa: TID251 - bookkeeping of frames, where there are such policies

        tracker = StateTracker(self.layout, len(given[FRAME]))  # type: ignore[arg-type]
        tracker.load(state)
        tracker.arrive(given[FRAME])
        outputs = self._run(tracker.view(given), tracker.n)
        tracker.note(given, Carry(*(outputs.get(name) for name in Carry._fields)))  # type: ignore[arg-type]
        return outputs, tracker.state()

    def _run(self, given: Mapping[str, Any], n: int) -> dict[str, npt.NDArray[Any]]:
        parts = self.description.observation | self.description.shown
        feeds = {}
        for name in self.inputs:
            dtype = parts[name].dtype if name in parts else "int8" if name == MASK else "float32"
            feeds[name] = np.ascontiguousarray(given[name], np.dtype(dtype))
        try:
            found = dict(zip(self.outputs, self.session.run(None, feeds), strict=True))
        except Exception as error:
            raise OnnxModelError(f"onnxruntime cannot run it: {str(error)[:200]}") from None
        if "log_probs" in found:
            log_probs = found["log_probs"]
            if log_probs.shape != (n, self.description.n_actions) or not np.isfinite(log_probs).all():
                raise OnnxModelError(f"its log-probabilities are no numbers, {self.description.n_actions} for each row")
        return found


def inspect_model(content: bytes) -> Description:
    """What the file says of itself, once it is known to be safe.

    Raises:
        OnnxModelError: it is not ONNX, too large, or holds something that policies do without.
        ImportError: onnx is missing.
    """
    try:
        import onnx
        from google.protobuf.message import DecodeError
    except ImportError as error:
        raise ImportError('acting from ONNX files needs onnx and onnxruntime: pip install "rao-envs[onnx]"') from error
    if len(content) > MAX_BYTES:
        raise OnnxModelError(f"it has more than {MAX_BYTES} bytes")
    try:
        model = onnx.ModelProto.FromString(content)
    except (DecodeError, ValueError, RecursionError):
        raise OnnxModelError("it is no ONNX file") from None
    _refuse(model)
    properties = [entry for entry in model.metadata_props if entry.key == "rao"]
    if len(properties) != 1:
        raise OnnxModelError('its metadata have no key "rao": write it with rao_agents.onnx_export')
    try:
        return Description.model_validate(json.loads(properties[0].value))
    except (ValidationError, ValueError, RecursionError) as error:
        raise OnnxModelError(f"its metadata are wrong: {str(error)[:300]}") from None


def _refuse(model: Any) -> None:
    """Raise OnnxModelError for whatever a policy does without."""
    import onnx

    if model.functions or model.training_info:
        raise OnnxModelError("it holds functions or training steps of its own")
    for entry in model.opset_import:
        if entry.domain not in ("", "ai.onnx") or not 7 <= entry.version <= MAX_OPSET:
            raise OnnxModelError(
                f"it needs operators of {entry.domain or 'ai.onnx'} {entry.version}; up to ai.onnx {MAX_OPSET} are allowed"
            )
    if len(model.graph.node) > MAX_NODES:
        raise OnnxModelError(f"it has more than {MAX_NODES} nodes")
    if model.graph.sparse_initializer:
        raise OnnxModelError("it holds sparse tensors")
    tensors = list(model.graph.initializer)
    for node in model.graph.node:
        if node.domain not in ("", "ai.onnx") or node.op_type not in OPERATORS:
            raise OnnxModelError(f"it uses the operator {node.domain}{'.' * bool(node.domain)}{node.op_type[:60]}, which no policy needs")
        for attribute in node.attribute:
            if attribute.HasField("g") or attribute.graphs or attribute.HasField("sparse_tensor") or attribute.sparse_tensors:
                raise OnnxModelError(f"a node {node.op_type} holds a graph of its own")
            tensors += [attribute.t] if attribute.HasField("t") else []
            tensors += list(attribute.tensors)
    for tensor in tensors:
        if tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.external_data:
            raise OnnxModelError(f"the tensor {tensor.name[:60]!r} lies in another file")
        size = 1
        for dim in tensor.dims:
            size *= max(int(dim), 0)
        if size > MAX_TENSOR:
            raise OnnxModelError(f"the tensor {tensor.name[:60]!r} has more than {MAX_TENSOR} elements")


def _layout(description: Description) -> Any:
    """The tracker's layout of a policy with state transfer: bookkeeping that `rao_agents` does."""
    try:
        from rao_agents.transfer.layout import Layout, TransferOptions  # noqa: TID251 - bookkeeping of frames, where there are such policies
    except ImportError as error:
        raise ImportError(
            f'a policy whose frames hand states on is run again with rao_agents: pip install "rao-envs[agents,onnx]" ({error})'
        ) from error
    assert description.transfer is not None
    if FRAME not in description.observation or description.plain:
        raise OnnxModelError(f"it hands states on, but does not see the key {FRAME!r}")
    parts = {name: part.space() for name, part in description.observation.items()}
    return Layout(spaces.Dict(parts), TransferOptions(**description.transfer.model_dump()))
