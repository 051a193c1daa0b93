# A node: SuperNode and what its ClientApp needs; no Ray, no plotting, no tables.
#   docker build -f deploy/images/node.Dockerfile -t wallflower-node:0.1.0 .
ARG BASE=python:3.11.14-slim-bookworm

FROM ${BASE} AS build
WORKDIR /src
COPY deploy/pins/node.txt deploy/pins/build.txt deploy/pins/
RUN python3 -m venv /opt/wallflower \
 && /opt/wallflower/bin/pip install --no-cache-dir --no-deps --require-hashes \
      -r deploy/pins/node.txt -r deploy/pins/build.txt
COPY pyproject.toml README.md LICENSE ./
COPY protocol protocol
COPY clients clients
COPY strategy strategy
COPY wallflower wallflower
COPY examples examples
RUN /opt/wallflower/bin/pip install --no-cache-dir --no-deps --no-build-isolation . \
 && /opt/wallflower/bin/pip uninstall -y setuptools pip

FROM ${BASE}
RUN useradd --uid 10002 --create-home --home-dir /var/lib/wallflower wallflower \
 && install -d -o 10002 -g 10002 -m 700 /var/lib/wallflower-counter
COPY --from=build /opt/wallflower /opt/wallflower
ENV PATH=/opt/wallflower/bin:/usr/local/bin:/usr/bin:/bin \
    FLWR_HOME=/var/lib/wallflower/flower \
    FLWR_TELEMETRY_ENABLED=0 \
    GRPC_SSL_CIPHER_SUITES=ECDHE-PSK-CHACHA20-POLY1305 \
    FLWR_DISABLE_UPDATE_CHECK=1 \
    FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1 \
    PYTHONUNBUFFERED=1
USER 10002:10002
WORKDIR /var/lib/wallflower
CMD ["flower-supernode", "--help"]
