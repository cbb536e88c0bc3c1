"""Long sequences: one agent for needle, count and max, trained on mixed lengths up to 10,000, scored on 10,000 and beyond."""

from __future__ import annotations

from typing import Any

from rao_baselines.experiments.experiment import Experiment, Sizes, Suite, Table

LENGTHS = [200, 10_000]
TASK = "RAO/LongSeq-10k-v0?"
QUERIES = ("needle", "count", "max")
LARGER = ("RAO/LongSeq-100k-v0?", "RAO/LongSeq-1M-v0?")
BEYOND = dict(zip(LARGER, ("100 k", "1 M"), strict=True))
CLOZE = "RAO/LongSeq-cloze-test-v0?"
"""Real text: a needle for whoever has learned to find one."""
SPARSE: dict[str, Any] = {"dense_weight": 0.0}


def _row(
    name: str, label: str, algorithm: str, seeds: int, steps: int, overrides: dict[str, Any] | None = None, arguments: str = ""
) -> Experiment:
    return Experiment(
        name,
        label,
        "mix",
        algorithm,
        "RAO/LongSeq-v0",
        seeds,
        steps,
        {"env_kwargs.length": LENGTHS} | (overrides or {}),
        scored_on=TASK + arguments,
        transfer=tuple(
            "&".join(part for part in (task, arguments) if part)
            for task in (
                *(f"{TASK}query={query}" for query in QUERIES),
                *LARGER,
                *(f"{LARGER[0]}query={query}" for query in QUERIES),
                CLOZE,
            )
        ),
        arguments=arguments,
    )


# The best trial of tuning at 60,000 steps.
BEST_TRIAL = {
    "learning_rate": "lin_0.000619",
    "ent_coef": "lin_0.0167",
    "gae_lambda": 0.98,
    "batch_size": 512,
    "clip_range": 0.3,
    "dense_weight": 6.15,
    "step_penalty": 0.01,
    "normalize": True,
    "policy_kwargs.net_arch": [384],
    "policy_kwargs.features_extractor_kwargs.features_dim": 384,
}
TWO_POINTERS = {"env_kwargs.pointers": 2}

LONGSEQ = Suite(
    "The long-sequence experiments: needle, count and max on mixed lengths up to 10,000, scored on 10,000, 100,000 and 1,000,000.",
    (
        _row("recursive_ppo", "RecursivePPO", "recursive_ppo", 5, 400_000),
        _row("maskable_ppo_dense", "MaskablePPO, pages and a note, dense", "maskable_ppo", 3, 400_000),
        _row("maskable_ppo_trial", "MaskablePPO, pages and a note, best short trial", "maskable_ppo", 1, 400_000, BEST_TRIAL),
        _row("maskable_ppo_sparse", "MaskablePPO, pages and a note, sparse", "maskable_ppo", 5, 400_000, SPARSE),
        _row("maskable_ppo_pointers", "MaskablePPO, two pointers, dense", "maskable_ppo", 1, 400_000, TWO_POINTERS, "pointers=2"),
        _row("recurrent_ppo_dense", "RecurrentPPO, pages and a note, dense", "recurrent_ppo", 1, 400_000),
        _row("flat_ppo_sparse", "flat credit, sparse", "flat_ppo", 1, 400_000, SPARSE),
        _row("flat_ppo_dense", "flat credit, dense", "flat_ppo", 1, 400_000),
        _row(
            "recursive_ppo_plain",
            "RecursivePPO, plain extractor",
            "recursive_ppo",
            1,
            400_000,
            {"policy_kwargs.features_extractor_kwargs.gated": False},
        ),
    ),
    {"mix": "LongSeq-10k, needle, count and max"},
    (
        Sizes(
            "longseq-lengths",
            "Long sequences, trained on up to 10,000 records",
            "mix",
            {TASK: "10 k", **BEYOND},
        ),
    ),
    (
        Table("queries", ("mix",), {f"10 k {query}, greedy / sampled": f"{TASK}query={query}" for query in QUERIES}),
        Table("lengths", ("mix",), {f"{name}, greedy / sampled": task for task, name in ({TASK: "10 k"} | BEYOND).items()}),
        Table("others", ("mix",), {f"100 k {query}": f"{LARGER[0]}query={query}" for query in QUERIES} | {"cloze, unseen texts": CLOZE}),
        Table("paths", ("mix",), {f"{name}, steps / critical path": task for task, name in ({TASK: "10 k"} | BEYOND).items()}, paths=True),
    ),
    trained_on="[Long sequences](docs/environments/longseq.md), up to 10 k records",
    headlines={
        "10 k records: needle, count and max": TASK,
        **{f"{name} records": task for task, name in BEYOND.items()},
        "[cloze](docs/environments/documents.md#cloze), real texts": CLOZE,
    },
)
