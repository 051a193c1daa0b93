"""Commands that serve until they are stopped: ``serve``, ``shuffler`` and ``watch``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def serve(
    run: Annotated[
        Path,
        typer.Argument(
            help="The run's directory, or an experiment's file to begin one.",
            metavar="RUN",
        ),
    ],
    run_dir: Annotated[
        Path | None,
        typer.Option(help="Where a new run's record goes.", metavar="FOLDER"),
    ] = None,
    orchestrator: Annotated[
        bool,
        typer.Option(help="Keep an orchestrator, or one that stands by, on this host."),
    ] = True,
    workers: Annotated[
        int, typer.Option(min=1, max=256, help="How many processes.")
    ] = 2,
    host: Annotated[
        str, typer.Option(help="Address on which people arrive.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of HTTP; 0: any.")
    ] = 8643,
    grpc_port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Port of gRPC; none by default."),
    ] = None,
    origin: Annotated[
        list[str] | None,
        typer.Option(help="Website whose pages may call; repeat for more."),
    ] = None,
    proxy: Annotated[
        list[str] | None,
        typer.Option(
            help="Address or network of a proxy that brings TLS and names callers."
        ),
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option(help="TLS certificate, if no proxy brings TLS.")
    ] = None,
    key: Annotated[Path | None, typer.Option(help="Its private key.")] = None,
    metrics: Annotated[
        str, typer.Option(help="Address of metrics and health; empty for none.")
    ] = "",
) -> None:
    """Serve people who arrive, with several processes; also on several hosts."""
    import asyncio

    from wallflower.serve.processes import ServerProcesses, ServeSetup
    from wallflower.serve.setup import WorkerSetup, check_copy, read_run

    if run.is_file():
        from wallflower.engines.run import found_run
        from wallflower.strategy.transport.grpc.host import run_secret

        run = found_run(run, "serve", run_dir).run_dir
        run_secret(run)  # now: a copy of the directory stands for the run elsewhere
    elif orchestrator:
        check_copy(run)
    place = str(run.resolve())
    read_run(run)  # what is wrong is said here, and not by every worker
    worker = WorkerSetup(
        run_dir=place,
        listener=-1,
        origins=tuple(origin or ()),
        proxies=tuple(proxy or ()),
        certificate="" if certificate is None else str(certificate.resolve()),
        private_key="" if key is None else str(key.resolve()),
    )
    worker.check(host)
    worker.tls()
    setup = ServeSetup(
        workers=workers,
        host=host,
        port=port,
        grpc_port=grpc_port,
        metrics=metrics,
        worker=worker,
        orchestrator=place if orchestrator else "",
    )

    async def keep() -> int:
        return await ServerProcesses(setup, typer.echo).run()

    raise typer.Exit(asyncio.run(keep()))


def shuffler(
    home: Annotated[Path, typer.Option(help="Folder of keys and records.")],
    listen: Annotated[str, typer.Option(help="Address to serve on.")] = "127.0.0.1:0",
    address: Annotated[
        list[str] | None,
        typer.Option(help="Name or IP that the server connects to; repeat for more."),
    ] = None,
    enrolment: Annotated[
        Path | None,
        typer.Option(
            help="Public enrolment key of the nodes; revoked.txt beside it is read too."
        ),
    ] = None,
    metrics: Annotated[
        str, typer.Option(help="Address of Prometheus metrics; empty for none.")
    ] = "",
    as_child: Annotated[bool, typer.Option("--as-child", hidden=True)] = False,
) -> None:
    """Run a shuffler; print its address and the fingerprint that nodes pin."""
    import asyncio

    from wallflower.shuffler.service import serve

    hosts = address or [listen.rpartition(":")[0]]
    asyncio.run(serve(home, listen, hosts, enrolment, metrics=metrics, child=as_child))


def watch(
    runs: Annotated[
        list[str],
        typer.Argument(help="The runs' directories, or their ids.", metavar="RUN..."),
    ],
    port: Annotated[
        int | None,
        typer.Option(help="By default 8642, or any free one.", metavar="N", max=65535),
    ] = None,
    as_child: Annotated[bool, typer.Option("--as-child", hidden=True)] = False,
) -> None:
    """Show runs on a page that follows them, also while they stop and go on.

    The page is on loopback. A proxy or an SSH tunnel brings it to other machines.
    """
    import asyncio

    from wallflower.results.run_folder import find_run
    from wallflower.watching.serve import serve

    directories = [find_run(run) for run in runs]

    def announce(address: str) -> None:
        # A parent process reads the address and nothing else.
        text = address if as_child else f"The page is at {address} (Ctrl-C ends it)"
        typer.echo(text)

    asyncio.run(serve(directories, port, announce, child=as_child))
