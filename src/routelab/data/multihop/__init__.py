"""Multi-hop questions over passages: readers for HotpotQA and 2WikiMultiHopQA, and contexts of a given length."""

from routelab.data.multihop.context import BuiltContext, build_contexts
from routelab.data.multihop.readers import MultiHopQuestion, Passage, read_multihop

__all__ = ["BuiltContext", "MultiHopQuestion", "Passage", "build_contexts", "read_multihop"]
