"""``routelab construct``: knowledge to exact weights with a certificate, and certificates checked again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from routelab.cli.common import console, quiet
from routelab.errors import CheckpointError, ConfigError

if TYPE_CHECKING:
    from routelab.theory import Certificate


def construct(
    facts: Annotated[Path | None, typer.Argument(help="A JSONL file of relations; see docs/knowledge.md.")] = None,
    out: Annotated[Path | None, typer.Option(help="Directory for model, certificate and summary.")] = None,
    eps: Annotated[float, typer.Option(help="Probability that may go to words that must not follow.")] = 0.01,
    router: Annotated[
        Literal["auto", "template"], typer.Option(help="template: the paper's, which reads template words alone.")
    ] = "auto",
    dense: Annotated[
        bool, typer.Option("--dense", help="One feed-forward network with circuits (Theorem 4.1).")
    ] = False,
    verify: Annotated[Path | None, typer.Option(help="Check the certificate of this directory again.")] = None,
) -> None:
    """Turn facts into a one-layer transformer that knows them exactly, and prove it prefix by prefix."""
    if (facts is None) == (verify is None):
        raise ConfigError("construct takes a file of facts, or --verify with a directory that it wrote")
    quiet()
    from routelab import theory

    if verify is not None:
        show_certificate(theory.verify(verify), verify)
        return
    if out is None:
        raise ConfigError("--out is missing: the directory for the model and its certificate")
    from routelab.data.knowledge import read_knowledge
    from routelab.report.html import report_run

    assert facts is not None
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out} exists and is not empty; choose another directory with --out")
    knowledge = read_knowledge(facts)
    made = theory.construct_dense(knowledge, eps) if dense else theory.construct_moe(knowledge, eps, router)
    certificate = theory.certify(made)
    theory.save(made, certificate, out)
    report_run(out)
    show_certificate(certificate, out)


def constructed(host: str) -> bool:
    """Whether ``--host`` names a directory that ``construct`` wrote."""
    return (Path(host) / "certificate.json").is_file()


def complete(host: str, text: str, *, as_json: bool) -> None:
    """Print the sentence that a constructed model makes of a prefix."""
    quiet()
    from routelab.theory import complete as completed

    sentence = completed(host, text)
    typer.echo(json.dumps({"prompt": text, "output": sentence}, ensure_ascii=False) if as_json else sentence)


def explain(host: str, text: str, *, as_json: bool) -> None:
    """Print what a constructed model does after a prefix: the next word, the expert, the neurons that fire."""
    quiet()
    from routelab.report.terminal import print_pairs
    from routelab.theory import explain as explained

    found: dict[str, Any] = explained(host, text)
    if as_json:
        typer.echo(json.dumps(found, ensure_ascii=False))
        return
    allowed = {True: "allowed by the facts", False: "not allowed by the facts", None: "no sentence begins like this"}
    pairs = [("next", f"{found['next']} ({found['probability']:.6f}), {allowed[found['valid']]}")]
    pairs.append(("expert", found["expert"] or "one network, no router"))
    pairs += [
        (
            f"neuron {each['index']}",
            f"{each['meaning']}, activation {each['activation']:.3g}, of {', '.join(each['tasks'])}",
        )
        for each in found["neurons"]
    ]
    print_pairs(console(), f"after {text!r}", pairs)


def show_certificate(certificate: Certificate, folder: Path) -> None:
    """Print what a certificate says; raise ``CheckpointError`` where it does not hold."""
    from routelab.report.terminal import print_pairs

    bounds = max(certificate.neurons, key=lambda count: count.value / count.bound)
    pairs = [("yes" if holds else "NO", claim) for claim, holds in certificate.claims.items()]
    pairs += [
        ("least mass", f"{certificate.least_mass:.6f} on valid next words, over all {certificate.prefixes:,} prefixes"),
        ("width", f"{certificate.width.value:,} of {certificate.width.bound:,}"),
        ("neurons", f"at most {bounds.value:,} of {bounds.bound:,} ({bounds.name})"),
    ]
    print_pairs(console(), f"certificate of theorem {certificate.theorem}, eps {certificate.eps:g}", pairs)
    typer.echo(f"\n{folder / 'summary.md'}")
    if not certificate.passed:
        raise CheckpointError(f"{folder}: the certificate does not hold")
