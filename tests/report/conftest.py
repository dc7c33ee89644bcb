"""An invented run with every field that a real one writes."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("report_example", Path(__file__).with_name("example.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
