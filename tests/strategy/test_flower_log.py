"""What Flower logs of a failed ServerApp."""

from __future__ import annotations

import logging

import pytest
from flwr.common import log

import wallflower.strategy.private_bandit as imported_by_apps
from wallflower.protocol.errors import ConfigError


def log_failure(error: Exception) -> None:
    """Log an exception with the words of Flower's ServerApp process."""
    try:
        raise error
    except Exception as caught:
        log(logging.ERROR, "%s raised an exception", "ServerApp", exc_info=caught)


def test_an_error_that_explains_itself_is_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert imported_by_apps
    log_failure(ConfigError("experiment.toml", "is not there"))
    (record,) = caplog.records
    said = "ServerApp raised an exception: experiment.toml: is not there"
    assert logging.Formatter("%(message)s").format(record) == said


def test_a_bug_keeps_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    log_failure(ZeroDivisionError("division by zero"))
    (record,) = caplog.records
    assert "Traceback" in logging.Formatter("%(message)s").format(record)
