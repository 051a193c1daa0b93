from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from wallflower.strategy.transport.grpc.stats import GrpcServerStats
from wallflower.strategy.watch.observing import Metrics


def samples(metrics: Metrics) -> dict[tuple[str, str], float]:
    found: dict[tuple[str, str], float] = {}
    for family in text_string_to_metric_families(metrics.text().decode()):
        for sample in family.samples:
            found[sample.name, ",".join(sample.labels.values())] = sample.value
    return found


def test_the_server_counters_are_exported_as_they_stand_at_the_scrape() -> None:
    stats = GrpcServerStats()
    metrics = Metrics(stats)
    stats.connected = 7
    stats.refused["revoked"] += 2
    stats.answers["ok"] += 5
    found = samples(metrics)
    assert found["wallflower_grpc_nodes_connected", ""] == 7
    assert found["wallflower_grpc_refused_total", "revoked"] == 2
    stats.refused["revoked"] += 1
    assert samples(metrics)["wallflower_grpc_refused_total", "revoked"] == 3


def test_the_histogram_is_cumulative_includes_its_bounds_and_ends_at_infinity() -> None:
    stats = GrpcServerStats()
    for seconds in (0.00390625, 0.25, 0.5, 9000.0):
        stats.latency.observe(seconds)
    found = samples(Metrics(stats))
    assert found["wallflower_grpc_answer_seconds_bucket", "0.005"] == 1
    assert found["wallflower_grpc_answer_seconds_bucket", "0.5"] == 3
    assert found["wallflower_grpc_answer_seconds_bucket", "+Inf"] == 4
    assert found["wallflower_grpc_answer_seconds_count", ""] == 4
    assert found["wallflower_grpc_answer_seconds_sum", ""] == 9000.75390625


def test_nothing_is_exported_but_what_is_declared() -> None:
    stats = GrpcServerStats()
    stats.latency.observe(1.0)
    assert not [name for name, _ in samples(Metrics(stats)) if "created" in name]
