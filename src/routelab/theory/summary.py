"""A certificate in words."""

from __future__ import annotations

from routelab.theory.certificate import Certificate
from routelab.theory.construct import Construction

_KINDS = {
    "template": "reads the template head alone, as in the paper",
    "auto": "also reads the names (an extension of the paper)",
}


def summary(construction: Construction, certificate: Certificate) -> str:
    """Return a page of Markdown: what was built, each claim, each size beside its bound."""
    part = "expert" if certificate.router else "circuit"
    lines = [
        f"# Theorem {certificate.theorem} on {certificate.tasks} task{'s' * (certificate.tasks != 1)}",
        "",
        f"Every prefix of every sentence was checked: {certificate.prefixes:,} of them, at ε = {certificate.eps}. The "
        f"certificate **{'passes' if certificate.passed else 'does not pass'}**.",
        "",
        *(f"- {'yes' if holds else '**no**'}: {claim}" for claim, holds in certificate.claims.items()),
        "",
        f"The least probability of valid next tokens is {certificate.least_mass:.6f}. One token of V(prefix) is "
        "favoured; the theorem bounds their sum.",
        "",
        "| size | value | bound |",
        "| --- | ---: | ---: |",
        f"| width, 2L\\|T\\| | {certificate.width.value} | {certificate.width.bound} |",
        f"| neurons in all | {certificate.all_neurons.value} | {certificate.all_neurons.bound} |",
        f"| attention heads | {certificate.heads} | 2 |",
        *(f"| {part} of {count.name} | {count.value} | {count.bound} |" for count in certificate.neurons),
        "",
        f"L = {certificate.L}, N = {certificate.N}, vocabulary {certificate.vocabulary}, γ = {certificate.gamma:.6g}.",
    ]
    if certificate.heads > 2:
        lines += ["", "The third head sees the latest name: here what follows both names depends on the second."]
    if certificate.router:
        lines += [
            "",
            f"The router {_KINDS[certificate.router]}. {certificate.shared_prefixes} prefixes begin sentences of "
            "several tasks and go to the first of these.",
        ]
    if certificate.detours:
        lines += ["", f"{certificate.detours} prefixes go to another expert, which knows them:", ""]
        lines += [f"- {example}" for example in certificate.examples]
    named = {count.name for count in certificate.neurons if not count.holds}
    if named:
        lines += ["", f"Above the bound: {', '.join(sorted(named))}."]
    return "\n".join([*lines, "", f"Tasks: {', '.join(task.name for task in construction.knowledge.tasks)}.", ""])
