"""The page of a construction: its certificate in words, every size beside its bound."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from routelab.errors import RecipeError
from routelab.report.construction import claim
from routelab.report.html import report_run

EVIL = "<script>alert(1)</script>"


def certificate(**changes: Any) -> dict[str, Any]:
    return {
        "format": 1,
        "theorem": "4.2",
        "router": "auto",
        "eps": 0.01,
        "gamma": 6982.0,
        "vocabulary": 148,
        "tasks": 2,
        "L": 10,
        "N": 41,
        "prefixes": 1409,
        "width": {"value": 50, "bound": 240, "name": ""},
        "neurons": [{"value": 45, "bound": 71, "name": "region"}, {"value": 80, "bound": 71, "name": EVIL}],
        "all_neurons": {"value": 125, "bound": 142, "name": ""},
        "least_mass": 0.9963,
        "forward_difference": 5e-15,
        "claims": {"width within 2L|T|": True, "every expert within L|T(k)| + N neurons": True},
        "tensors": {"lm_head.weight": "ab" * 32},
        **changes,
    }


def test_a_construction_has_a_page(tmp_path: Path) -> None:
    (tmp_path / "certificate.json").write_text(json.dumps(certificate()), encoding="utf-8")
    page, written = report_run(tmp_path)
    assert page.claim.startswith("On all 1,409 prefixes the valid next words have a probability of at least 0.9963")
    assert {path.name for path in written} == {"report.html", "neurons.png", "neurons.svg", "neurons.csv"}
    html = written[0].read_text(encoding="utf-8")
    assert EVIL not in html
    assert f"routelab construct --verify {tmp_path}" in html
    assert page.tables[1].rows[-2:] == [["expert of region", "45", "71"], [f"expert of {EVIL}", "80", "71"]]


def test_a_part_that_does_not_hold_is_the_claim() -> None:
    failed = certificate(claims={"width within 2L|T|": False})
    assert claim(failed) == "The certificate does not hold: width within 2L|T|."


def test_a_certificate_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "certificate.json"
    path.write_text(json.dumps(certificate(format=2)), encoding="utf-8")
    with pytest.raises(RecipeError, match="newer version"):
        report_run(tmp_path)
    values = certificate()
    del values["gamma"]
    path.write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(RecipeError, match=r"certificate.json lacks 'gamma'; construct the model again"):
        report_run(tmp_path)
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(RecipeError, match=r"certificate.json lacks claims, .*construct the model again"):
        report_run(tmp_path)
