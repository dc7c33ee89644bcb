"""Attention-aware routing (arXiv 2609.20974)."""
