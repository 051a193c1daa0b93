from __future__ import annotations

import pytest

from wallflower.protocol.errors import InputError
from wallflower.strategy.sections import StoreSettings


def test_a_run_is_kept_in_its_directory_unless_a_database_is_named() -> None:
    assert StoreSettings().url == ""
    url = "postgresql://wallflower@db.example:5432/runs?sslmode=verify-full"
    assert StoreSettings(url).url == url


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:hunter2@db/runs",
        "postgresql://me@db/runs?password=hunter2",
        "postgresql://db/runs?user=me&PASSWORD=hunter2",
        "postgresql://me@db/runs?sslpassword=hunter2",
        "mysql://me:hunter2@db/runs",
        "//me:hunter2@[db/runs",
        "host=db password=hunter2",
    ],
)
def test_an_address_with_a_password_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(InputError) as caught:
        StoreSettings(url)
    assert "hunter2" not in str(caught.value)
    assert "postgresql://" in str(caught.value) or "pgpass" in str(caught.value)
