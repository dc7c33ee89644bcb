"""Named errors. Each is a ``ValueError`` whose text says what was wrong, where, and the nearest valid choice."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class RoutelabError(ValueError):
    """Base of every error that Routelab raises on purpose."""


class HostError(RoutelabError):
    """The model is of a family, or in a state, that the request cannot be applied to."""


class LayerError(RoutelabError):
    """A layer selection names layers that do not exist or that the method cannot use."""


class ConfigError(RoutelabError):
    """A configuration value is out of its domain, or two values contradict each other."""


class ConflictError(RoutelabError):
    """Two methods claim the same part of one model."""


class MatchError(RoutelabError):
    """A method matched nothing in the model."""


class ModeError(RoutelabError):
    """A prompt names no mode, or two that contradict each other, or a mode is given that does not exist."""


class CheckpointError(RoutelabError):
    """A saved file is missing, damaged, of another shape, or not of this model."""


class RecipeError(RoutelabError):
    """A recipe does not parse, or asks for something that does not exist."""


class DataError(RoutelabError):
    """A data file is missing or malformed, or a data set leaves nothing to work on."""


class TrainingError(RoutelabError):
    """Training cannot do what was asked, or broke a promise it makes."""


class EvaluationError(RoutelabError):
    """An evaluation cannot be run as asked, or its inputs do not belong together."""


class BackendError(RoutelabError):
    """A backend that was named explicitly cannot run these inputs here."""


class LaunchError(RoutelabError):
    """The processes of a run were not started in the way that the run needs."""


class MissingPackageError(RoutelabError):
    """An optional package that the request needs is not installed."""


def closest(name: str, choices: Iterable[str]) -> str:
    """Return a hint for a misspelt ``name``: the nearest of ``choices``, then all of them.

    The hint starts with ``"; "`` so that it can be appended to a sentence, and is empty when there are no choices.
    """
    known = sorted(set(choices))
    if not known:
        return ""
    near = get_close_matches(str(name), known, n=1, cutoff=0.5)
    meant = f"did you mean {near[0]!r}? " if near else ""
    return f"; {meant}known: {', '.join(known)}"
