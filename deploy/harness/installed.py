"""A whole experiment by installed programs: of a wheel, or of images.

``python -m deploy.harness.installed OPERATOR NODE`` takes the mounted file systems of
the two images, puts each program of theirs on a host of its own (a network namespace,
the image as its root, the image's user), and runs keys, SuperLink, SuperNodes, the run
and its verification from them.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from deploy.harness.consortium import Consortium, consortium
from deploy.harness.experiment import TRUE_MEANS, LabRun, Plan, write_experiment
from deploy.harness.flower import environment
from wallflower.protocol.errors import UnavailableError

PLAN = Plan(users=1000, dropout="0", backend="secagg-plus")
NODES = ("clinic-a", "clinic-b", "clinic-c")
_PROGRAMS = ("flower-superlink", "flower-superexec", "flower-supernode", "flwr")


def write_node(built: Consortium, name: str) -> None:
    """Fill a node's home for rewards that need no code beside the wheel's."""
    (built.home_of(name) / "node.toml").write_text(
        f'[node]\nusers = {PLAN.users}\nkeys = "{built.store.nodes / name}"\n\n'
        "[policy]\nsmallest-floor-fraction = 0.2\n\n"
        f"[rewards]\nmeans = {list(TRUE_MEANS)}\n"
    )


def run_installed(
    folder: Path, operator: str, node: str, *, namespaces: bool, cwd: Path | None = None
) -> str:
    """Run an experiment with the programs found on two PATHs; give what it said.

    Raises
    ------
    UnavailableError
        The run or its verification failed.
    """
    own = {"PATH": operator, "PYTHONPATH": ""}
    with consortium(
        folder,
        NODES,
        write_node,
        namespaces=namespaces,
        users=PLAN.users,
        on_disk=False,
        operator_environment=own,
        node_environment=lambda built, name: {"PATH": node, "PYTHONPATH": ""},
    ) as built:
        experiment, run_dir = write_experiment(built, PLAN, len(NODES)), folder / "run"
        words = ("run", str(experiment), "--engine", "deployment")
        process = built.supervisor.start(
            "run",
            built.operator.host,
            ["wallflower", *words, "--run-dir", str(run_dir)],
            environment=environment(built.operator.home, own),
            folder=cwd or folder,
        )
        if LabRun(built, run_dir, process).finish(240) != 0:
            raise UnavailableError(f"the run failed: {process.text()[-2000:]}")
        verified = subprocess.run(
            built.operator.host.command(["wallflower", "verify", str(run_dir)]),
            env=environment(built.operator.home, own),
            capture_output=True,
            text=True,
            check=False,
        )
        if verified.returncode != 0:
            raise UnavailableError(f"verify: {verified.stdout}{verified.stderr}")
        return process.text() + verified.stdout


@contextlib.contextmanager
def image_programs(image: Path, site: Path, user: int) -> Iterator[str]:
    """Return a PATH whose programs run inside an image, as its user.

    The image sees the site's folder under the same name, and nothing else of this
    machine; what a program is to write belongs to the image's user.
    """
    programs = Path(tempfile.mkdtemp(prefix="wf-programs-"))
    mounted = [image / "proc", image / "dev", image / site.relative_to("/")]
    mounted[-1].mkdir(parents=True, exist_ok=True)
    try:
        for source, target in zip(("/proc", "/dev", str(site)), mounted, strict=True):
            subprocess.run(["mount", "--rbind", source, str(target)], check=True)
        for name in ("wallflower", *_PROGRAMS):
            script = programs / name
            script.write_text(
                "#!/bin/bash\n"
                '[ "${HOME##*/}" = flower ] && own="${HOME%/*}" || own="$HOME"\n'
                f'keys="{site}/keys/nodes/${{own##*/}}"\n'
                f'[ -d "$keys" ] || keys="{site}/keys/operator"\n'
                f'mkdir -p "{site}/run"; chmod 711 "{site}"/keys/nodes{{,/*}}\n'
                f'chmod 644 "{site}"/keys/nodes/*/flower.pub\n'
                f'chown -R {user}:{user} "$own" "$keys"\n'
                f'[ {name} = wallflower ] && chown -R {user}:{user} "{site}/run"\n'
                f'exec chroot --userspec={user}:{user} "{image}" env -u PYTHONPATH '
                "PATH=/opt/wallflower/bin:/usr/local/bin:/usr/bin:/bin "
                f'{name} "$@"\n'
            )
            script.chmod(0o755)
        yield f"{programs}:/usr/sbin:/usr/bin:/sbin:/bin"
    finally:
        for target in reversed(mounted):
            subprocess.run(["umount", "-R", "-l", str(target)], check=False)
        shutil.rmtree(programs)


def main() -> None:
    """Run an experiment from two mounted images."""
    operator, node = (Path(word) for word in sys.argv[1:3])
    site = Path(tempfile.mkdtemp(prefix="wf-images-"))
    site.chmod(0o755)
    with (
        image_programs(operator, site, 10001) as operator_path,
        image_programs(node, site, 10002) as node_path,
    ):
        said = run_installed(site, operator_path, node_path, namespaces=True)
    # Only after success, and with nothing mounted any more: else its logs are wanted.
    shutil.rmtree(site)
    sys.stdout.write(said)


if __name__ == "__main__":
    main()
