"""Who gets in at Flower's own door, from hosts of their own, through the real proxy.

The gRPC server's door is tried in tests/integration/test_who_gets_in.py on loopback.
"""

from __future__ import annotations

import datetime
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.harness.consortium import Consortium, consortium
from deploy.harness.processes import until
from deploy.harness.proxy import start_proxy
from wallflower.keys.store import KeyStore

pytestmark = [pytest.mark.hosts, pytest.mark.timeout(300)]
NOW = datetime.datetime.now(datetime.UTC)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Consortium]:
    folder = tmp_path_factory.mktemp("admission")
    with consortium(
        folder, ["clinic-a"], lambda built, name: None, spare=["stranger"]
    ) as built:
        built.await_nodes(1)
        yield built


def post(site: Consortium, host: str, url: str) -> str:
    """Call an address from a host; gives the HTTP status, or 000 for none."""
    done = subprocess.run(
        site.hosts[host].command(
            [
                *("curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "-m", "5"),
                *("--cacert", str(site.store.operator / "ca.crt"), "-X", "POST", url),
            ]
        ),
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


@pytest.mark.parametrize(
    "path", ["/v1/control/list-runs", "/v1/control/start-run", "/v1/runtime/get-nodes"]
)
def test_a_node_cannot_reach_the_control_and_runtime_apis(
    site: Consortium, path: str
) -> None:
    assert post(site, "clinic-a", f"https://{site.fleet}{path}") == "403"


def test_the_fleet_api_answers_through_the_proxy(site: Consortium) -> None:
    # 415: SuperLink saw the request and wants protobuf.
    path = "/v1/fleet/register-node"
    assert post(site, "clinic-a", f"https://{site.fleet}{path}") == "415"


def test_superlinks_own_port_is_closed_to_other_hosts(site: Consortium) -> None:
    address = site.hosts["operator"].address
    url = f"https://{address}:{site.operator.port}/v1/control/list-runs"
    assert post(site, "clinic-a", url) == "000"


def test_an_unknown_flower_key_is_refused(site: Consortium, tmp_path: Path) -> None:
    other = KeyStore(tmp_path / "keys")
    other.create("Elsewhere", ["10.0.0.1"], days=1)
    folder = other.add_node("stranger", capacity=1, days=1, now=NOW)
    shutil.copyfile(site.store.operator / "ca.crt", folder / "ca.crt")
    process = site.start_node("stranger", keys=folder)
    assert process.wait(60) != 0
    assert "305" in process.text() or "not authorized" in process.text().lower()
    assert site.operator.nodes_online() == 1
    assert (folder / "flower.key").read_text() not in process.text()


def test_a_proxy_of_another_authority_is_not_spoken_to(
    site: Consortium, tmp_path: Path
) -> None:
    other = KeyStore(tmp_path / "keys")
    other.create("Elsewhere", [site.hosts["operator"].address], days=1)
    folder = site.store.add_node("foreign", capacity=1, days=1, now=NOW)
    shutil.copyfile(other.operator / "ca.crt", folder / "ca.crt")
    process = site.start_node("stranger", keys=folder)
    until("TLS refusal", lambda: "certificate" in process.text().lower(), 60)
    process.stop()
    assert site.operator.nodes_online() == 1


def test_an_expired_server_certificate_is_refused(
    site: Consortium, tmp_path: Path
) -> None:
    past = NOW - datetime.timedelta(days=60)
    address = site.hosts["operator"].address
    site.store.issue_server([address], days=30, now=past)
    try:
        keys = tmp_path / "expired"
        shutil.copytree(site.store.operator, keys)
    finally:
        site.store.issue_server([address], days=30)
    start_proxy(
        site.supervisor,
        site.hosts["operator"],
        port=444,
        superlink=f"127.0.0.1:{site.operator.port}",
        keys=keys,
        folder=tmp_path / "proxy",
        name="expired-proxy",
    )
    folder = site.store.add_node("late", capacity=1, days=1, now=NOW)
    process = site.start_node("stranger", keys=folder, fleet=f"{address}:444")
    until("TLS refusal", lambda: "certificate" in process.text().lower(), 60)
    process.stop()
    assert site.operator.nodes_online() == 1


def test_a_node_taken_off_superlinks_list_is_out(site: Consortium) -> None:
    listed = json.loads(
        site.operator.flwr("supernode", "list", "wallflower", "--format", "json")
    )
    [node] = [n["node-id"] for n in listed["nodes"] if n["status"] == "online"]
    site.operator.flwr("supernode", "unregister", node, "wallflower")
    until("the node is off", lambda: site.operator.nodes_online() == 0, 90)
    process = site.node_processes["clinic-a"]
    process.stop()
    again = site.start_node("clinic-a")
    assert again.wait(60) != 0
