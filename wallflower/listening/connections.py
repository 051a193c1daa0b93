"""What one connection may hold in gRPC's own memory before anybody is known.

gRPC keeps what arrives until our code reads it. Left alone it lets a fast sender's
window grow to megabytes, read or not. And each piece of a message keeps alive the 8 KiB
that were read from the network together with it, so that a message of 4 KiB in pieces
of 24 bytes holds 1.4 MiB. So nothing is read of a stranger, and a stream that nobody
reads has a window of 256 bytes. `make bench-strangers` measures what is left.
"""

from __future__ import annotations

Options = list[tuple[str, int]]

# A node needs one stream; the others are for health checks.
_MOST_STREAMS = 4
_WINDOW_BYTES = 256
_MOST_HEADER_BYTES = 8 * 1024
_HANDSHAKE_S = 15
_IDLE_S = 60
# A connection that is so old gets no new streams; those it has go on.
_AGE_S = 3600


def connection_options(most_connections: int) -> Options:
    """Return the options of a gRPC server that anybody can reach."""
    return [
        ("grpc.max_allowed_incoming_connections", most_connections),
        ("grpc.max_concurrent_streams", _MOST_STREAMS),
        ("grpc.max_metadata_size", _MOST_HEADER_BYTES),
        ("grpc.absolute_max_metadata_size", _MOST_HEADER_BYTES),
        # A message that is being read gets the window it needs, this one or not.
        ("grpc.http2.lookahead_bytes", _WINDOW_BYTES),
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.hpack_table_size.decoder", 0),
        ("grpc.server_handshake_timeout_ms", _HANDSHAKE_S * 1000),
        ("grpc.http2.settings_timeout", _HANDSHAKE_S * 1000),
        ("grpc.max_connection_idle_ms", _IDLE_S * 1000),
        ("grpc.max_connection_age_ms", _AGE_S * 1000),
        # Two servers on one port would share its nodes; the second must fail to open.
        ("grpc.so_reuseport", 0),
    ]
