"""People arrive at two serving hosts; a third one has PostgreSQL.

The shipped proxy stands before both. While people come, the host that orchestrates is
cut off, later the other one loses power, and at last the database is killed.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from deploy.harness.database import HostDatabase
from deploy.harness.flower import ROOT, environment
from deploy.harness.network import Network
from deploy.harness.processes import Process, Supervisor, listening, until
from deploy.harness.proxy import start_visitors_proxy
from wallflower.keys.store import KeyStore
from wallflower.protocol.files.keyfiles import public_key_pem
from wallflower.protocol.identity.enrolment import EnrolmentKey

pytestmark = [pytest.mark.hosts, pytest.mark.timeout(900)]

HOSTS = ("database", "serve-a", "serve-b", "proxy", "trustees", "people")
TRUSTEES = ("ann", "ben", "cas", "dee", "eve")
HTTPS, GRPC = 8444, 8443
TAKEOVER_S = 5.0  # what docs/visitors.md promises
EXPERIMENT = """
[experiment]
name = "sign-up"
arms = ["short", "long"]
horizon = 4000
[policy]
first-batch = 100
[rewards]
means = [0.48, 0.52]
[transport]
host = "0.0.0.0"
port = {grpc}
public-address = "{proxy}:{grpc}"
certificate = "{keys}/server.crt"
private-key = "{keys}/server.key"
[visitors]
admission = "invited"
inviter = "inviter.pub"
trustees = {trustees}
answer-s = 30
[store]
url = "{url}"
"""


@dataclass
class Site:
    """All hosts and what runs on them."""

    folder: Path
    network: Network
    supervisor: Supervisor
    database: HostDatabase
    keys: Path

    def environment(self) -> dict[str, str]:
        passwords = str(self.database.passwords)
        return environment(self.folder / "home", {"PGPASSFILE": passwords})

    def start(self, name: str, host: str, *words: str | Path) -> Process:
        return self.supervisor.start(
            name,
            self.network.hosts[host],
            [sys.executable, "-m", *map(str, words)],
            environment=self.environment(),
            folder=self.folder,
        )

    def serve(self, host: str, run: Path, *more: str) -> Process:
        proxy = self.network.hosts["proxy"].address
        words = ("--host", "0.0.0.0", "--port", "8643", "--proxy", proxy)
        return self.start(host, host, "wallflower", "serve", run, *words, *more)

    def run_dir(self, host: str) -> Path:
        return self.folder / host / "run"

    def wallflower(self, host: str, *words: str) -> str:
        done = subprocess.run(
            self.network.hosts[host].command(
                [sys.executable, "-m", "wallflower", *words, str(self.run_dir(host))]
            ),
            capture_output=True,
            text=True,
            env=self.environment(),
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def orchestrates(self, host: str) -> bool:
        return listening(self.network.hosts[host], GRPC)

    def until_orchestrates(self, host: str) -> float:
        return until(f"{host} orchestrates", lambda: self.orchestrates(host), 60, 0.01)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    store = KeyStore(tmp_path / "keys")
    with (
        Network(HOSTS) as network,
        ExitStack() as stack,
        Supervisor(tmp_path / "logs") as supervisor,
    ):
        store.create("Shop", [network.hosts["proxy"].address], days=2)
        database = HostDatabase(supervisor, network.hosts["database"], tmp_path)
        stack.callback(database.remove)
        yield Site(tmp_path, network, supervisor, database, store.operator)


def write_experiment(site: Site) -> Path:
    inviter = EnrolmentKey.generate()
    (site.folder / "inviter.pub").write_bytes(public_key_pem(inviter.public_key))
    (site.folder / "inviter.seed").write_bytes(inviter.private_bytes())
    path = site.folder / "experiment.toml"
    path.write_text(
        EXPERIMENT.format(
            grpc=GRPC,
            proxy=site.network.hosts["proxy"].address,
            keys=site.keys,
            trustees=json.dumps(TRUSTEES),
            url=site.database.url,
        )
    )
    return path


def start_trustees(site: Site, invitations: Path) -> list[Process]:
    started = []
    for name in TRUSTEES:
        home = site.folder / "trustees" / name
        home.mkdir(parents=True)
        (home / "node.toml").write_text(f'[node]\nname = "{name}"\nusers = 0\n')
        invitation = "--invitation", str(invitations / f"{name}.json")
        words = ("wallflower", "trustee", home, *invitation)
        started.append(site.start(name, "trustees", *words))
    return started


def told(people: Process) -> int:
    """How many people were told so far that they count."""
    lines = [line for line in people.text().split("\n")[:-1] if line.isdecimal()]
    return int(lines[-1]) if lines else 0


def until_told(people: Process, more: int) -> None:
    wanted = told(people) + more
    until(f"{wanted} people", lambda: told(people) >= wanted, 240)


def seated(site: Site, host: str) -> Sequence[tuple[str, str]]:
    """Read visitors and the states of their seats from the database."""
    program = (
        "import json,sys;from pathlib import Path;"
        "from wallflower.strategy.store.seat_store import SeatStore;"
        "store=SeatStore.open(Path(sys.argv[1]));"
        "print(json.dumps([list(r) for r in store.database.rows("
        "'SELECT visitor, state FROM seat WHERE visitor IS NOT NULL')]));store.close()"
    )
    done = subprocess.run(
        site.network.hosts[host].command(
            [sys.executable, "-c", program, str(site.run_dir(host))]
        ),
        capture_output=True,
        text=True,
        env=site.environment(),
        check=True,
        cwd=ROOT,
    )
    found: list[tuple[str, str]] = [tuple(row) for row in json.loads(done.stdout)]
    return found


def test_two_hosts_serve_a_run_whatever_one_of_them_and_the_database_suffer(
    site: Site,
) -> None:
    site.database.make()
    postgres = site.database.start()
    experiment = write_experiment(site)
    run_a, run_b = site.run_dir("serve-a"), site.run_dir("serve-b")
    run_a.parent.mkdir()
    site.serve("serve-a", experiment, "--run-dir", str(run_a))
    until("the run's record", (run_a / "store.toml").exists, 60)
    until("the run's secret", (run_a / "run-token.secret").exists, 60)
    shutil.copytree(run_a, run_b)
    site.until_orchestrates("serve-a")
    serve_b = site.serve("serve-b", run_b)
    start_visitors_proxy(
        site.supervisor,
        site.network.hosts["proxy"],
        workers=[site.network.hosts[name].address for name in ("serve-a", "serve-b")],
        keys=site.keys,
        folder=site.folder / "proxy",
    )
    until("invitations", lambda: len(list(run_a.glob("trustees/*.json"))) == 5, 60)
    trustees = start_trustees(site, run_a / "trustees")
    run_id = next(iter(run_a.glob("trustees/*.json"))).read_text()
    people = site.start(
        "people",
        "people",
        "tests.integration.hosts.people",
        f"https://{site.network.hosts['proxy'].address}:{HTTPS}",
        site.keys / "ca.crt",
        site.folder,
        json.loads(run_id)["run-id"],
        "8",
    )
    until("somebody counts", lambda: told(people) > 0, 240)

    until_told(people, 20)
    assert not site.orchestrates("serve-b")  # it stands by
    site.network.cut("serve-a")
    took_s = site.until_orchestrates("serve-b")
    print(f"\nserve-a was cut off: serve-b orchestrates after {took_s:.1f} s")
    assert took_s <= TAKEOVER_S
    until_told(people, 20)
    site.network.mend("serve-a")
    until("serve-a gives up", lambda: not site.orchestrates("serve-a"), 60)

    serve_b.kill()
    took_s = site.until_orchestrates("serve-a")
    print(f"serve-b lost power: serve-a orchestrates after {took_s:.1f} s")
    until_told(people, 20)
    site.serve("serve-b", run_b)

    postgres.kill()
    site.database.start()
    print("PostgreSQL was killed and started again")
    code = people.wait(600)
    text = people.text()
    assert code == 0, text[-3000:]
    last = json.loads(text.strip().split("\n")[-1])
    print(f"shown {last['shown']}")
    assert all(one.wait(60) == 0 for one in trustees)

    rows = seated(site, "serve-b")
    assert len(rows) == len({visitor for visitor, _ in rows})  # nobody twice
    answered = {visitor for visitor, state in rows if state == "answered"}
    assert set(last["told"]) <= answered  # nobody lost
    print(site.wallflower("serve-b", "status"))
    print(site.wallflower("serve-b", "verify"))
