"""The 57 subjects of MMLU by subject group, as the authors of MMLU (arXiv 2009.03300) group them.

Attention-Aware Routing (arXiv 2609.20974) reports eight of the groups in its table 5 and shows physics and economics in
figure 4 as subjects that ask for reasoning and retrieval alike; which subjects it counts into a group it does not say.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

GROUPS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "math": (
            "abstract_algebra",
            "college_mathematics",
            "elementary_mathematics",
            "high_school_mathematics",
            "high_school_statistics",
        ),
        "computer science": (
            "college_computer_science",
            "computer_security",
            "high_school_computer_science",
            "machine_learning",
        ),
        "biology": ("college_biology", "high_school_biology"),
        "history": (
            "high_school_european_history",
            "high_school_us_history",
            "high_school_world_history",
            "prehistory",
        ),
        "health": (
            "anatomy",
            "clinical_knowledge",
            "college_medicine",
            "human_aging",
            "medical_genetics",
            "nutrition",
            "professional_medicine",
            "virology",
        ),
        "psychology": ("high_school_psychology", "professional_psychology"),
        "geography": ("high_school_geography",),
        "philosophy": (
            "formal_logic",
            "logical_fallacies",
            "moral_disputes",
            "moral_scenarios",
            "philosophy",
            "world_religions",
        ),
        "physics": ("astronomy", "college_physics", "conceptual_physics", "high_school_physics"),
        "economics": ("econometrics", "high_school_macroeconomics", "high_school_microeconomics"),
        "chemistry": ("college_chemistry", "high_school_chemistry"),
        "engineering": ("electrical_engineering",),
        "law": ("international_law", "jurisprudence", "professional_law"),
        "politics": (
            "high_school_government_and_politics",
            "public_relations",
            "security_studies",
            "us_foreign_policy",
        ),
        "culture": ("human_sexuality", "sociology"),
        "business": ("business_ethics", "management", "marketing"),
        "other": ("global_facts", "miscellaneous", "professional_accounting"),
    }
)

#: Table 5, reasoning before retrieval, and what figure 4 adds between them.
REASONING = ("math", "computer science")
BOTH = ("physics", "economics")
RETRIEVAL = ("biology", "history", "health", "psychology", "geography", "philosophy")

#: Table 5 as published: the change of accuracy in points with AAR^T in all layers of OLMoE, for M = 10, 20 and 64.
PUBLISHED: Mapping[str, tuple[float, float, float]] = MappingProxyType(
    {
        "math": (0.7, 0.6, 0.5),
        "computer science": (0.5, 0.4, -0.1),
        "biology": (-4.5, -3.4, -3.8),
        "history": (-2.5, -2.4, -2.2),
        "health": (-1.4, -1.8, -1.9),
        "psychology": (-1.4, -1.7, -1.2),
        "geography": (-1.0, 0.2, 0.0),
        "philosophy": (-3.2, -3.1, -3.4),
    }
)


def group_of(subject: str) -> str | None:
    """Return the group of a subject, such as ``high_school_physics``; None for a name that MMLU does not have."""
    return next((group for group, subjects in GROUPS.items() if subject in subjects), None)
