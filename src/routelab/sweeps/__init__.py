"""Studies that train: many ordinary training runs that differ in one setting, and the curve they give together."""
