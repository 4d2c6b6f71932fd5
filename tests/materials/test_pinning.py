"""Names, slugs and licences of a checkpoint that is new here. Pinning itself is tested against a hub, by command."""

from __future__ import annotations

import pytest

from bellwether.errors import ParamsError
from bellwether.materials.pinning import read_name, slug_of, spdx

REVISION = "0123456789abcdef0123456789abcdef01234567"


def test_a_name_is_repository_and_commit():
    """As the Hub writes both."""
    assert read_name(f"Qwen/Qwen2.5-7B_x@{REVISION}") == ("Qwen/Qwen2.5-7B_x", REVISION)


@pytest.mark.parametrize(
    ("model", "slug"),
    [
        ("Qwen/Qwen3-8B", "qwen3-8b"),
        ("zai-org/GLM-4.6", "glm-4.6"),
        ("owner/Tiny_Chat__1B", "tiny-chat-1b"),
    ],
)
def test_a_slug_is_the_name_without_its_owner_in_lower_case(model: str, slug: str):
    """A run of other characters is one '-'; dots stay."""
    assert slug_of(model) == slug


@pytest.mark.parametrize("model", ["owner/_x", "owner/x-", "owner/a-_b", "owner/..", "owner/---"])
def test_a_name_that_makes_no_slug_is_refused(model: str):
    """A slug is a folder and an item of a DVC list."""
    with pytest.raises(ParamsError, match="has no slug"):
        slug_of(model)


@pytest.mark.parametrize(
    ("license", "written"),
    [
        ("apache-2.0", "Apache-2.0"),
        ("cc-by-nc-4.0", "CC-BY-NC-4.0"),
        ("gemma", "LicenseRef-gemma"),
        ("Tiny Terms (v2)", "LicenseRef-Tiny-Terms-v2"),
        (None, "NOASSERTION"),
    ],
)
def test_a_licence_is_written_as_spdx(license: str | None, written: str):
    """Identifiers where SPDX has one, a reference for a vendor's own terms."""
    assert spdx(license) == written
