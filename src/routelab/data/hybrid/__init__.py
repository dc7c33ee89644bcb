"""Hybrid corpora: chats that think or answer at once, as a control word says. Pure Python, no torch."""

from routelab.data.hybrid.build import HybridCorpus, build_hybrid
from routelab.data.hybrid.condense import bare_answer, condense, condensing_prompt
from routelab.data.hybrid.config import HybridConfig, Limits
from routelab.data.hybrid.readers import READERS, read_targets
from routelab.data.hybrid.schedule import two_phases
from routelab.data.hybrid.targets import Target
from routelab.data.hybrid.writing import write_corpus

__all__ = [
    "READERS",
    "HybridConfig",
    "HybridCorpus",
    "Limits",
    "Target",
    "bare_answer",
    "build_hybrid",
    "condense",
    "condensing_prompt",
    "read_targets",
    "two_phases",
    "write_corpus",
]
