"""What a training run looks at once it has trained: studies of its routing, and tasks of the evaluation harness."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from routelab.errors import RecipeError, closest
from routelab.recipe.reading import CHECKED, TUPLE, Scalar, build, expect

#: Five worked problems and one that is asked, of the mini-world.
FEW_SHOT = "mini-few-shot"

Layers = Annotated[tuple[Annotated[int, Field(strict=True, ge=0)], ...], TUPLE]
Names = Annotated[tuple[str, ...], TUPLE]


@dataclass(frozen=True, kw_only=True, config=CHECKED)
class Texts:
    """What a study reads: the first ``limit`` texts of each of ``tasks``, cut to ``longest`` tokens. ``options`` go to
    the first task."""

    tasks: Names = Field(default=(FEW_SHOT,), min_length=1)
    options: dict[str, Scalar] = Field(default_factory=dict)
    limit: int = Field(default=64, ge=1)
    longest: int | None = Field(default=None, ge=2)


@dataclass(frozen=True, kw_only=True, config=CHECKED)
class ACFStudy(Texts):
    """Autocorrelation of the attention window of each size in ``window``, in ``layers`` (None: all)."""

    study: Literal["acf"] = "acf"
    limit: int = Field(default=16, ge=1)
    window: Annotated[tuple[Annotated[int, Field(strict=True, ge=2)], ...], TUPLE] = Field(
        default=(20, 64, 128), min_length=1
    )
    layers: Layers | None = None


@dataclass(frozen=True, kw_only=True, config=CHECKED)
class SinksStudy(Texts):
    """Attention on the first token, model against control. ``patch`` also gives the control the model's routing, layer
    by layer of ``layers`` (None: all), which takes both models at once."""

    study: Literal["sinks"] = "sinks"
    limit: int = Field(default=32, ge=1)
    patch: bool = False
    layers: Layers | None = None

    def __post_init__(self) -> None:
        if self.layers is not None and not self.patch:
            raise RecipeError("layers names layers to patch; add patch: true")


@dataclass(frozen=True, kw_only=True, config=CHECKED)
class RoutingStudy(Texts):
    """What the routers do; with ``compare`` also how far they agree with the control's, which takes both models."""

    study: Literal["routing"] = "routing"
    tasks: Names = Field(default=(FEW_SHOT, "mini-facts", "mini-paragraphs"), min_length=1)
    compare: bool = True


@dataclass(frozen=True, kw_only=True, config=CHECKED)
class GatesStudy(Texts):
    """Gates of attention-aware routing."""

    study: Literal["gates"] = "gates"


StudySpec = ACFStudy | SinksStudy | RoutingStudy | GatesStudy


def compares(spec: StudySpec) -> bool:
    """Whether a study reads the control's routing too."""
    return isinstance(spec, SinksStudy) or (isinstance(spec, RoutingStudy) and spec.compare)


STUDIES: Mapping[str, type[StudySpec]] = MappingProxyType(
    {"acf": ACFStudy, "gates": GatesStudy, "routing": RoutingStudy, "sinks": SinksStudy}
)


@dataclass(frozen=True, kw_only=True, config=CHECKED)
class HarnessSpec:
    """Tasks of the lm-evaluation-harness, by name, with their own settings.

    ``limit``: the first so many examples of each. ``chat``: asked through the host's chat template. ``generation``:
    changes to the tasks' own. ``data``: other places of our tasks' rows, such as ``{mmlu: "cais/mmlu:all"}``.
    ``run_code`` permits tasks to run code that the model wrote.
    """

    tasks: Annotated[tuple[Annotated[str, Field(pattern=r"^[\w:+-]+$")], ...], TUPLE] = Field(min_length=1)
    limit: int | None = Field(default=None, ge=1)
    batch_size: int = Field(default=16, ge=1)
    chat: bool = False
    generation: dict[str, Any] = Field(default_factory=dict)
    data: dict[str, str] = Field(default_factory=dict)
    run_code: bool = False


def parse_studies(rows: Any, origin: str) -> tuple[StudySpec, ...]:
    """Read a list of studies, each a name or a mapping with the name under ``study`` and options beside it."""
    return tuple(
        parse_study(row, origin, f"studies.{i}") for i, row in enumerate(expect(list, rows, origin, "studies"))
    )


def parse_study(row: Any, origin: str, where: str = "") -> StudySpec:
    """Read one study; ``where`` is the path of its key in ``origin``, for errors."""
    values = {"study": row} if isinstance(row, str) else expect(dict, row, origin, where)
    name = values.get("study")
    if name is None:
        raise RecipeError(f"{origin}: {where}.study is missing{closest('', STUDIES)}")
    if not isinstance(name, str) or name not in STUDIES:
        hint = closest(str(name), STUDIES)
        raise RecipeError(f"{origin}: {where}: a run makes no study called {name!r} of its routing{hint}")
    spec: StudySpec = build(STUDIES[name], values, origin, where)
    return spec
