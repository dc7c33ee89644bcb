"""Path-Lock experts (arXiv 2604.27201)."""
