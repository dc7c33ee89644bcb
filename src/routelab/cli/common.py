"""What commands share: option types, the console, the model that ``--host`` and ``--routing`` name."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from routelab import processes
from routelab.errors import ConfigError, closest

if TYPE_CHECKING:
    from rich.console import Console

Host = Annotated[str, typer.Option(help="A shipped mini, a directory, or a hub name.")]
Routing = Annotated[Path | None, typer.Option(help="A directory written by routelab.save, put on the host.")]
Dtype = Annotated[
    Literal["float32", "bfloat16", "float16"] | None, typer.Option(help="The checkpoint's own by default.")
]
Trust = Annotated[bool, typer.Option("--trust-remote-code", help="Run Python code that comes with the checkpoint.")]
Raw = Annotated[bool, typer.Option("--raw", help="Take the prompt as it is, without the chat template.")]
Seed = Annotated[int, typer.Option(help="Seed of sampling.")]
Method = Annotated[str | None, typer.Option(help="Attach a method that needs no training: wise.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", help="A setting of the method: block_size=16. Repeatable.")
]
Backend = Annotated[
    str, typer.Option(help="Where cells run: local (processes of this machine) or ray (pip install 'routelab[ray]').")
]
NumSteps = Annotated[int | None, typer.Option(min=1, help="Recurrent steps; the host's own number by default.")]


def writable(path: Path | None) -> Path | None:
    """Callback of an option that names a JSON file: where it cannot be written is said before the work, not after it.

    Raises:
        ConfigError: it is a directory, or its folder cannot be made or written into.
    """
    if path is not None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"--out {path}: its folder cannot be made ({error})") from error
        if path.is_dir() or not os.access(path.parent, os.W_OK):
            reason = "it is a directory; name a file in it" if path.is_dir() else "its folder cannot be written into"
            raise ConfigError(f"--out {path}: {reason}")
    return path


def writable_folder(path: Path | None) -> Path | None:
    """The same for a directory."""
    if path is not None:
        writable(path / "summary.json")
    return path


def load_model(host: str, routing: Path | None, dtype: Any, trust_remote_code: bool) -> Any:
    """Return the model and tokenizer that the options name."""
    quiet()
    import routelab
    from routelab.recipe import HostSpec
    from routelab.run import load

    model, tokenizer = load(HostSpec(host, dtype=dtype, trust_remote_code=trust_remote_code))
    if routing is not None:
        routelab.load(routing, model)
    return model, tokenizer


def method_config(name: str, settings: list[str]) -> Any:
    """Return the configuration of an untrained method that the options describe.

    Raises:
        ConfigError: no such method or setting, or one that does nothing before it is trained.
    """
    import dataclasses

    from routelab.methods.registry import config_class, untrained
    from routelab.recipe import assignments

    cls = config_class(name)
    if name not in untrained():
        raise ConfigError(
            f"{name} must be trained first, then --routing puts it on; untrained: {', '.join(untrained())}"
        )
    values = assignments(settings, "--set")
    known = [field.name for field in dataclasses.fields(cls)]
    for key in values:
        if key not in known:
            raise ConfigError(f"--set: {name} has no setting {key!r}{closest(key, known)}")
    return cls(**values)


def attach_untrained(model: Any, method: str | None, settings: list[str] | None) -> None:
    """Attach the method that ``--method`` and ``--set`` describe, if one is named.

    Raises:
        ConfigError: as :func:`method_config`; also settings without a method.
    """
    import routelab

    if method is not None:
        routelab.attach(model, method_config(method, settings or []))
    elif settings:
        raise ConfigError("--set changes a setting of --method, and there is none")


def progress(name: str) -> Callable[[int, int], None] | None:
    """Return a reporter of sequences done, on one line of a terminal; None elsewhere."""
    if not sys.stderr.isatty() or not processes.is_first():
        return None

    def show(done: int, of: int) -> None:
        typer.echo(f"\r{name}: {done} of {of}" + ("\n" if done >= of else ""), nl=False, err=True)

    return show


def read_prompt(prompt: str) -> str:
    """Return the prompt, from standard input where it is ``-``; an empty one is refused."""
    text = sys.stdin.read() if prompt == "-" else prompt
    if not text.strip():
        raise ConfigError("the prompt is empty")
    return text


def cores() -> int:
    """Return the threads of this process's computations: ``OMP_NUM_THREADS``, else the cores it may use."""
    told = os.environ.get("OMP_NUM_THREADS", "")
    return int(told) if told.isdecimal() and int(told) else len(os.sched_getaffinity(0))


def quiet() -> None:
    """Keep the libraries' progress bars and advice off the terminal; what is wrong is raised, not logged."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # for the processes that are started
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, log_path=False)
