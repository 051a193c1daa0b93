"""``wallflower serve``: worker processes for people who arrive."""

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
    workers: Annotated[int, typer.Option(min=1, max=256, help="Processes.")] = 2,
    host: Annotated[str, typer.Option(help="Where people arrive.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="HTTP; 0: any.")] = 8643,
    grpc_port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="gRPC; none by default.")
    ] = None,
    origin: Annotated[
        list[str] | None,
        typer.Option(help="Website whose pages may call; repeat for more."),
    ] = None,
    proxy: Annotated[
        list[str] | None,
        typer.Option(help="Address or network of a proxy that brings TLS and says who"),
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
    from wallflower.serve.setup import WorkerSetup, read_run

    if run.is_file():
        from wallflower.engines.run import found_run

        run = found_run(run, "serve", run_dir).run_dir
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
