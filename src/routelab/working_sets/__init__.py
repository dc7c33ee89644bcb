"""Runs on working sets: a depth-recurrent host answers questions under WISE and its controls."""
