"""What Flower logs of a failed ServerApp."""

from __future__ import annotations

import logging

import pytest
from flwr.common import log

import wallflower.strategy.private_bandit as imported_by_apps
from wallflower.protocol.errors import ConfigError


class Records(logging.Handler):
    """Keeps what Flower's logger hands on, whatever the loggers above it do."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def flower(monkeypatch: pytest.MonkeyPatch) -> logging.Logger:
    """Flower's logger, on, whatever was set up before."""
    logger = logging.getLogger("flwr")
    monkeypatch.setattr(logger, "disabled", False)
    monkeypatch.setattr(logger, "level", logging.INFO)
    logger.manager._clear_cache()  # type: ignore[attr-defined]
    return logger


def log_failure(flower: logging.Logger, error: Exception) -> str:
    """Log an exception with the words of Flower's ServerApp; return what was logged."""
    kept = Records()
    flower.addHandler(kept)
    try:
        raise error
    except Exception as caught:
        log(logging.ERROR, "%s raised an exception", "ServerApp", exc_info=caught)
    finally:
        flower.removeHandler(kept)
    (record,) = kept.records
    return logging.Formatter("%(message)s").format(record)


def test_an_error_that_explains_itself_is_one_line(flower: logging.Logger) -> None:
    assert imported_by_apps
    said = log_failure(flower, ConfigError("experiment.toml", "is not there"))
    assert said == "ServerApp raised an exception: experiment.toml: is not there"


def test_a_bug_keeps_its_traceback(flower: logging.Logger) -> None:
    assert "Traceback" in log_failure(flower, ZeroDivisionError("division by zero"))
