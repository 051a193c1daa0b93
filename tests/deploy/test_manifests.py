"""What the compose files, manifests and units promise, held against Flower itself."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from wallflower.cli import command_line
from wallflower.listening.descriptors import RESERVED
from wallflower.protocol.identity import tls
from wallflower.strategy.transport.grpc.settings import GrpcServerSettings

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
SHUFFLER = typer.main.get_command(command_line()).commands["shuffler"]  # type: ignore[attr-defined]
SERVE = typer.main.get_command(command_line()).commands["serve"]  # type: ignore[attr-defined]
PROGRAMS = ("flower-superlink", "flower-superexec", "flower-supernode")


@cache
def known_flags(program: str) -> frozenset[str]:
    path = Path(sys.executable).with_name(program)
    shown = subprocess.run([path, "--help"], capture_output=True, text=True, check=True)
    return frozenset(re.findall(r"--[a-z][a-z-]+", shown.stdout))


def documents(folder: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    for path in sorted((DEPLOY / folder).rglob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            yield path, document


def compose_commands() -> Iterator[list[str]]:
    for _, document in documents("compose"):
        for service in document.get("services", {}).values():
            if "command" in service:
                yield service["command"]


def kubernetes_containers() -> Iterator[dict[str, Any]]:
    for _, document in documents("kubernetes"):
        if document["kind"] == "StatefulSet":
            yield from document["spec"]["template"]["spec"]["containers"]


def unit_commands() -> Iterator[list[str]]:
    for path in sorted((DEPLOY / "systemd").glob("*.service")):
        text = path.read_text().replace("\\\n", " ")
        for line in re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE):
            program, *rest = line.split()
            yield [Path(program).name, *rest]


def all_commands() -> list[list[str]]:
    pods = [c["args"] for c in kubernetes_containers() if "args" in c]
    commands = [*compose_commands(), *pods, *unit_commands()]
    return [command for command in commands if command[0] in PROGRAMS]


def test_every_program_is_started_by_every_kind_of_deployment() -> None:
    for commands in (compose_commands(), unit_commands()):
        assert {command[0] for command in commands} >= set(PROGRAMS)


@pytest.mark.slow  # starts Flower's programs
@pytest.mark.parametrize("program", PROGRAMS)
def test_every_flag_exists_in_the_pinned_flower(program: str) -> None:
    used = {
        word.partition("=")[0]
        for command in all_commands()
        if command[0] == program
        for word in command[1:]
        if word.startswith("--")
    }
    assert used
    assert used <= known_flags(program), used - known_flags(program)


def test_superlink_always_authenticates_nodes_where_it_has_tls() -> None:
    for command in all_commands():
        text = " ".join(command)
        if command[0] == "flower-superlink" and "--ssl-certfile" in text:
            assert "--enable-supernode-auth" in text
            assert "--isolation=process" in text.replace(" process", "=process")
            assert "--superexec-auth-secret-file" in text


def test_superlink_never_listens_beyond_loopback_in_pods_and_units() -> None:
    pods = [c["args"] for c in kubernetes_containers() if "args" in c]
    for command in [*pods, *unit_commands()]:
        if command[0] == "flower-superlink":
            assert re.search(r"--host[= ]127\.0\.0\.1", " ".join(command))


def test_compose_publishes_no_port_of_superlink() -> None:
    for _, document in documents("compose"):
        service = document["services"].get("superlink", {})
        assert "ports" not in service
        assert service.get("networks", ["inner"]) == ["inner"]


def test_pods_run_without_root_and_with_a_read_only_root() -> None:
    for _, document in documents("kubernetes"):
        if document["kind"] == "StatefulSet":
            pod = document["spec"]["template"]["spec"]
            assert pod["securityContext"]["runAsNonRoot"] is True
            assert pod["automountServiceAccountToken"] is False
    for container in kubernetes_containers():
        context = container["securityContext"]
        assert context["readOnlyRootFilesystem"] is True
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}


def test_the_network_policy_lets_in_the_proxy_and_the_server_only() -> None:
    policies = {
        path.parent.name: document["spec"]
        for path, document in documents("kubernetes")
        if document["kind"] == "NetworkPolicy"
    }
    public = [rule for rule in policies["operator"]["ingress"] if "from" not in rule]
    ports = [port["port"] for rule in public for port in rule["ports"]]
    assert ports == [8444, 8443]
    assert "ingress" not in policies["node"]
    assert "Ingress" in policies["node"]["policyTypes"]


def test_images_are_pinned_and_leave_root() -> None:
    for path in (DEPLOY / "images").glob("*.Dockerfile"):
        text = path.read_text()
        assert re.search(r"^ARG BASE=\S+:\d+\.\d+\.\d+-slim-\w+$", text, re.MULTILINE)
        assert re.findall(r"^USER (\d+)", text, re.MULTILINE)[-1] != "0"
        assert "--no-deps --require-hashes" in text


def test_every_pin_has_a_version_and_hashes_and_stands_once() -> None:
    runtime = [*pins("node.txt"), *pins("operator.txt")]
    for name in ("dev.txt", "bench.txt", "check.txt"):
        assert not {*pins(name)} & {*runtime}
    assert len(runtime) == len({*runtime})
    assert {*pins("build.txt")} < {*pins("dev.txt")}


def pins(name: str) -> list[str]:
    """Return the pinned versions; each must bring its hashes."""
    text = (DEPLOY / "pins" / name).read_text()
    entries = re.split(r"\n(?=\S)", re.sub(r"^#.*\n", "", text).strip())
    for entry in entries:
        assert re.match(r"[a-z0-9.-]+==\S+ (; \S.* )?\\\n +--hash=sha256:", entry), (
            entry
        )
    return [entry.split()[0] for entry in entries]


def test_the_pods_proxy_is_the_rendered_template() -> None:
    rendered = subprocess.run(
        [DEPLOY / "render-proxy"], capture_output=True, text=True, check=True
    ).stdout
    assert (DEPLOY / "kubernetes/operator/nginx.conf").read_text() == rendered
    assert not re.search("@[A-Z]", rendered)
    assert "location / { return 403; }" in rendered


def test_rendering_refuses_a_setting_it_does_not_know() -> None:
    done = subprocess.run(
        [DEPLOY / "render-proxy", "LISTN=1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "LISTN" in done.stderr


def units() -> Iterator[tuple[str, str]]:
    for path in sorted((DEPLOY / "systemd").glob("*.service")):
        yield path.name, path.read_text()


def test_every_process_is_started_with_tls_1_3_only() -> None:
    setting = f"{tls.VARIABLE}={tls.NO_TLS_12}"
    started = [text for _, text in units()]
    started += [path.read_text() for path in (DEPLOY / "images").glob("*.Dockerfile")]
    assert all(setting in text for text in started)
    proxy = (DEPLOY / "proxy" / "nginx.conf").read_text()
    for directive in ("ssl_protocols", "proxy_ssl_protocols"):
        assert re.findall(rf"^ *{directive} (.*);$", proxy, re.MULTILINE) == ["TLSv1.3"]


def test_the_operators_processes_may_open_a_file_for_every_stream_of_the_server() -> (
    None
):
    needed = GrpcServerSettings().most_streams + RESERVED
    limits = {
        name: int(limit)
        for name, text in units()
        for limit in re.findall(r"^LimitNOFILE=(\d+)$", text, re.MULTILINE)
    }
    assert limits.keys() == {name for name, _ in units()}
    for _, document in documents("compose"):
        for name, service in document.get("services", {}).items():
            if "image" in service:
                limits[f"compose {name}"] = service["ulimits"]["nofile"]["hard"]
    of_nodes = {"wallflower-node@.service", "compose supernode"}
    of_nodes |= {"wallflower-shuffler.service", "compose shuffler"}
    assert of_nodes < limits.keys()
    assert all(limits[name] > needed for name in limits.keys() - of_nodes)


def test_every_kind_of_deployment_starts_the_shuffler_with_the_enrolment_key() -> None:
    pods = [c["args"] for c in kubernetes_containers() if "args" in c]
    for kind in (list(compose_commands()), pods, list(unit_commands())):
        (command,) = (c for c in kind if c[:2] == ["wallflower", "shuffler"])
        used = {word.partition("=")[0] for word in command if word.startswith("--")}
        assert {"--home", "--listen", "--address", "--enrolment"} <= used
        assert used <= {option for p in SHUFFLER.params for option in p.opts}


def test_the_shuffler_runs_with_what_a_nodes_image_holds() -> None:
    absent = ["ray", "matplotlib"]
    assert not {pin.partition("==")[0] for pin in pins("node.txt")} & {*absent}
    program = (
        f"import sys; sys.modules.update(dict.fromkeys({absent!r})); "
        "import wallflower.cli, wallflower.shuffler.service"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_people_who_arrive_are_served_by_options_that_exist_behind_a_named_proxy() -> (
    None
):
    known = {option for p in SERVE.params for option in p.opts}
    pods = [c["args"] for c in kubernetes_containers() if "args" in c]
    for kind in (list(compose_commands()), pods):
        (command,) = (c for c in kind if c[:2] == ["wallflower", "serve"])
        used = {word.partition("=")[0] for word in command if word.startswith("--")}
        assert used <= known
        assert "--proxy" in used or {"--certificate", "--key"} <= used
    proxy = (DEPLOY / "proxy" / "visitors.conf").read_text()
    assert "proxy_set_header X-Forwarded-For $remote_addr;" in proxy
    assert re.findall(r"location (.*?) \{", proxy) == [
        "= /wallflower.v1.VisitorService/Poll",
        "= /wallflower.js",
        "/",
    ]
