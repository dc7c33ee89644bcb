"""The paper's example, shared by the tests of knowledge."""

from __future__ import annotations

import pytest

from routelab.data.knowledge import Knowledge, Task, Template


@pytest.fixture
def paper() -> Knowledge:
    """Section 3.1 of arXiv 2606.14398: capitals, and languages with the country that speaks them."""
    place = Task("place", (Template.parse("⋆1 is in ⋆2."),), (("Paris", "France"), ("Madrid", "Spain")))
    spoken = Template.parse("⋆1 is spoken widely in ⋆2.")
    return Knowledge((place, Task("language", (spoken,), (("English", "Canada"), ("Hindi", "India")))))
