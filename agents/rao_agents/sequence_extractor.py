"""Feature extractors for windows of thousands of records (`RAO/LongSeq`)."""

from __future__ import annotations

import torch as th
from gymnasium import spaces
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import nn

from rao_envs.longseq import layout
from rao_envs.longseq.queries import CODES, DIGITS, PLACES, QUERIES, SYMBOLS

MAY_SPAWN, JUST_OPENED = 0, 3
"""Of `call`: the fields that mean the same at any length."""
DIGIT_BINS = 4


class SequenceExtractor(BaseFeaturesExtractor):
    """Pools a window of records by how much each one's key resembles the question's.

    A gate sigmoid(alpha cos(key, query) + beta) weighs every record; the gated records are summed per digit and in all, and each sum is
    shown in bins around 0, 1, 2, ... (linear interpolation between neighbours). With note, flags and the children's answers, each by
    itself and one input for every pair of them, this goes through one fully connected layer, of which every kind of question has its own.

    What is built in (the inductive bias): order does not matter; records are compared with the question by one learned embedding of
    keys, which starts orthogonal, and one sharp learned threshold, so that at first a record passes if its key is the question's;
    digits are categories (nothing says that 7 is more than 5); sums are told apart up to `bins` and not above, so that larger numbers
    take smaller spans; kinds of questions share no first layer; pairs of children's answers are told apart from the start; budgets
    are not shown. What is not: what any kind of question asks for, how sums and the children's answers become an answer, when to
    spawn, turn a page or write a note.

    `gated=False` is the plain alternative: records are embedded, averaged, and go through a layer of their own; no record is
    compared with the question.

    Args:
        observation_space: of a `RAO/LongSeq` environment.
        features_dim: number of features.
        window, notes: the environment's keyword arguments.
        gated: False for the plain alternative.
        keys: how many of the question's keys are pooled for: 1, or up to 3 for questions that have more.
        panes: also pool the halves of the window by themselves, for questions about pairs.
        join_note: also one input for every pair of a note symbol and a bin, as there is for pairs of children's answers: for agents that
            page, whose note takes the place of the first child's answer.
        bins: for sums over all digits; sums per digit have DIGIT_BINS.
        sharpness: alpha at the start; beta starts at minus half of it.
        embedding_dim: of keys; below CODES their embeddings cannot all be orthogonal.

    Raises:
        ValueError: the observation space is not that of a `RAO/LongSeq` environment with these keyword arguments.
    """

    digit_bins: th.Tensor
    bins: th.Tensor

    def __init__(
        self,
        observation_space: spaces.Dict,
        features_dim: int = 256,
        window: int = 2000,
        notes: int = SYMBOLS,
        gated: bool = True,
        keys: int = 1,
        panes: bool = False,
        join_note: bool = False,
        bins: int = 16,
        sharpness: float = 24.0,
        embedding_dim: int = CODES,
    ) -> None:
        super().__init__(observation_space, features_dim)
        self.records = layout.records_in(window)
        self.head = layout.AT_NOTE + PLACES * notes
        size = self.head + 2 * self.records
        given = observation_space["task"].shape
        if given != (size,):
            raise ValueError(f"a window of {window} tokens and {notes} note symbols make {size} numbers, but `task` has the shape {given}")
        if not 1 <= keys <= PLACES:
            raise ValueError(f"keys must be 1 to {PLACES}, got {keys}")
        self.gated, self.query_keys = gated, keys
        self.parts = 2 if panes else 1
        # Key 0, "no record", keeps an embedding of zeros.
        self.embedding = nn.Embedding(CODES + 1, embedding_dim, padding_idx=0)
        with th.no_grad():
            nn.init.orthogonal_(self.embedding.weight[1:])
        self.note = slice(layout.AT_NOTE, self.head)
        context = self.head - layout.AT_FITS + layout.CHILDREN * layout.PER_CHILD + 2 + PLACES * SYMBOLS**2
        if gated:
            self.alpha = nn.Parameter(th.tensor(float(sharpness)))
            self.beta = nn.Parameter(th.tensor(-sharpness / 2.0))
            self.register_buffer("digit_bins", th.arange(DIGIT_BINS, dtype=th.float32))
            self.register_buffer("bins", th.arange(bins, dtype=th.float32))
            pooled = (2 * self.parts - 1) * keys * (DIGITS * DIGIT_BINS + bins)
        else:
            self.digits = nn.Embedding(DIGITS, embedding_dim)
            self.per_key = nn.Linear(keys * embedding_dim, features_dim)
            self.pool = nn.Sequential(nn.Linear(self.parts * 2 * embedding_dim, features_dim), nn.Tanh())
            pooled = 2 * features_dim
        self.join_note = join_note
        joint = PLACES * notes * pooled if join_note else 0
        self.layers = nn.ModuleList(nn.Linear(context + pooled + joint, features_dim) for _ in QUERIES)

    def forward(self, observations: dict[str, th.Tensor]) -> th.Tensor:
        """Features, (batch, features_dim)."""
        task = observations["task"].flatten(1)
        head = task[:, : self.head]
        codes = head[:, layout.AT_CODES : layout.AT_CODES + self.query_keys].long()
        results = observations["results"].flatten(1)
        pooled = self.pool_gated(task, codes) if self.gated else self.pool_plain(task, codes)
        shown = [head[:, layout.AT_FITS :], results, observations["call"][:, [MAY_SPAWN, JUST_OPENED]], pooled]
        children = results.reshape(-1, layout.CHILDREN, layout.PER_CHILD)[:, :, 1:].reshape(-1, layout.CHILDREN, PLACES, SYMBOLS)
        shown.append((children[:, 0].unsqueeze(3) * children[:, 1].unsqueeze(2)).flatten(1))
        if self.join_note:
            shown.append((head[:, self.note].unsqueeze(2) * pooled.unsqueeze(1)).flatten(1))
        inputs = th.cat(shown, dim=1)
        kinds = head[:, layout.AT_KIND : layout.AT_CODES].argmax(dim=1)
        return th.tanh(self._by_kind(kinds, inputs))

    def _by_kind(self, kinds: th.Tensor, inputs: th.Tensor) -> th.Tensor:
        """Each row through the layer of its kind of question, (batch, features_dim)."""
        # A graph has no rows of its own to choose: all layers, of which each row keeps its own.
        if th.jit.is_tracing():  # type: ignore[attr-defined]
            features: th.Tensor = self.layers[0](inputs)
            for kind, layer in enumerate(self.layers):
                features = th.where((kinds == kind).unsqueeze(1), layer(inputs), features)
            return features
        features = inputs.new_zeros(len(inputs), self.features_dim)
        for kind, layer in enumerate(self.layers):
            rows = th.nonzero(kinds == kind).squeeze(1)
            if len(rows):
                features = features.index_copy(0, rows, layer(inputs[rows]))
        return features

    def tally(self, task: th.Tensor) -> th.Tensor:
        """How often each (key, digit) occurs in each part of the window: (batch, parts, CODES + 1, DIGITS)."""
        batch = task.shape[0]
        half = self.records // self.parts
        cells = (task[:, self.head : self.head + self.records] * DIGITS + task[:, self.head + self.records :]).long()
        counts = task.new_zeros(batch * self.parts, (CODES + 1) * DIGITS)
        counts.scatter_add_(1, cells.reshape(batch * self.parts, half), task.new_ones(()).expand(batch * self.parts, half))
        return counts.reshape(batch, self.parts, CODES + 1, DIGITS)

    def gates(self, codes: th.Tensor) -> th.Tensor:
        """How much each key passes for each of the question's keys: (batch, keys, CODES + 1); 0 where there is no key."""
        table = nn.functional.normalize(self.embedding.weight, dim=1)
        cosines = table[codes] @ table.T
        gates = th.sigmoid(self.alpha * cosines + self.beta)
        passes = (codes > 0).unsqueeze(2) & (th.arange(CODES + 1, device=codes.device) > 0)
        return th.where(passes, gates, gates.new_zeros(()))

    def pool_gated(self, task: th.Tensor, codes: th.Tensor) -> th.Tensor:
        """The gated sums in bins, flat. Sums over records are taken over the tally: the same, and faster."""
        sums = th.einsum("bqk,bpkd->bpqd", self.gates(codes), self.tally(task))
        if self.parts > 1:
            sums = th.cat([sums, sums.sum(dim=1, keepdim=True)], dim=1)
        return th.cat([in_bins(sums, self.digit_bins).flatten(1), in_bins(sums.sum(dim=3), self.bins).flatten(1)], dim=1)

    def pool_plain(self, task: th.Tensor, codes: th.Tensor) -> th.Tensor:
        """The records' mean embedding, and the question's."""
        tally = self.tally(task)
        tally = th.cat([th.zeros_like(tally[:, :, :1]), tally[:, :, 1:]], dim=2)
        total = tally.sum(dim=(2, 3), keepdim=True).clamp(min=1.0)
        share = tally / total
        mean = th.cat([share.sum(dim=3) @ self.embedding.weight, share.sum(dim=2) @ self.digits.weight], dim=2)
        return th.cat([self.pool(mean.flatten(1)), th.tanh(self.per_key(self.embedding(codes).flatten(1)))], dim=1)


def in_bins(sums: th.Tensor, centres: th.Tensor) -> th.Tensor:
    """How close each sum (...) is to each centre 0, 1, ..., shape (..., n): 1 on it, 0 one away; larger sums count as the last."""
    return (1.0 - (sums.clamp(max=float(len(centres) - 1)).unsqueeze(-1) - centres).abs()).clamp(min=0.0)
