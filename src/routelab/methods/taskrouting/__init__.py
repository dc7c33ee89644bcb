"""Task-expert routing (arXiv 2606.14398)."""
