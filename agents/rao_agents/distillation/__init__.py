"""Recursive self-distillation: a training run teaches itself from what it has been through (MISSION B1-B11)."""

from __future__ import annotations

from rao_agents.distillation.buffer import ExperienceBuffer
from rao_agents.distillation.callback import SelfDistillationCallback
from rao_agents.distillation.distillers.base import Distiller, Experience, NotEnoughError
from rao_agents.distillation.distillers.contrastive import ContrastiveDistiller, ContrastiveKnowledge
from rao_agents.distillation.distillers.improvement import ImprovementDistiller, ImprovementKnowledge
from rao_agents.distillation.distillers.skills import Skill, SkillDistiller, SkillKnowledge, SkillLibrary
from rao_agents.distillation.distillers.student import PolicyKnowledge, StudentDistiller
from rao_agents.distillation.episodes import Episode, States, states
from rao_agents.distillation.guard import Guard, HeldOut
from rao_agents.distillation.injectors import AuxiliaryLoss, ElasticWeightConsolidation, InitialiseFrom, Injector, PolicyInterpolation
from rao_agents.distillation.knowledge import Knowledge, KnowledgeFileError, Provenance, register_knowledge
from rao_agents.distillation.priors import Priors
from rao_agents.distillation.recorder import EpisodeRecorder
from rao_agents.distillation.rounds import Round, RoundArchive
from rao_agents.distillation.settings import make_callback
from rao_agents.distillation.triggers import AnyOf, BufferFull, Interval, Plateau, Trigger
from rao_agents.distillation.weighting import Weighting

__all__ = [
    "AnyOf",
    "AuxiliaryLoss",
    "BufferFull",
    "ContrastiveDistiller",
    "ContrastiveKnowledge",
    "Distiller",
    "ElasticWeightConsolidation",
    "Episode",
    "EpisodeRecorder",
    "Experience",
    "ExperienceBuffer",
    "Guard",
    "HeldOut",
    "ImprovementDistiller",
    "ImprovementKnowledge",
    "InitialiseFrom",
    "Injector",
    "Interval",
    "Knowledge",
    "KnowledgeFileError",
    "NotEnoughError",
    "Plateau",
    "PolicyInterpolation",
    "PolicyKnowledge",
    "Priors",
    "Provenance",
    "Round",
    "RoundArchive",
    "SelfDistillationCallback",
    "Skill",
    "SkillDistiller",
    "SkillKnowledge",
    "SkillLibrary",
    "States",
    "StudentDistiller",
    "Trigger",
    "Weighting",
    "make_callback",
    "register_knowledge",
    "states",
]
