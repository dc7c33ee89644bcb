"""Working-set inference of depth-recurrent models: discover early, reuse late (WISE, arXiv 2609.27373)."""
