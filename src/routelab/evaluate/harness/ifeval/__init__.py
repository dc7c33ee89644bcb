"""IFEval (arXiv 2311.07911): whether an answer follows verifiable instructions, strictly and loosely."""
