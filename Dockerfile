# The gauge in a container:
#
#   docker build -t streamgauge .
#   docker run -p 8080:8080 -p 127.0.0.1:9464:9464 streamgauge --upstream https://api.openai.com
#
# `docker stop` gives ten seconds unless told otherwise; streams may run on for longer: `docker stop -t 900`.

# Debian 12 in both stages: the binary needs no newer C library than the one it meets.
FROM rust:1.95.0-slim-bookworm AS build
WORKDIR /src
COPY . .
# The caches hold the registry and the compiled dependencies between builds; what is in them is not in the layer.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked --bin streamgauge \
 && cp target/release/streamgauge /streamgauge

# C library, time zones and public certificates; no shell, no package manager. The tag follows security fixes.
FROM gcr.io/distroless/cc-debian12:nonroot
LABEL org.opencontainers.image.title="streamgauge" \
      org.opencontainers.image.description="A transparent measuring reverse proxy for LLM inference" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /streamgauge /usr/local/bin/streamgauge
# On loopback, the default, nobody outside the container could connect.
ENV STREAMGAUGE_LISTEN=0.0.0.0:8080 \
    STREAMGAUGE_ADMIN=0.0.0.0:9464
# By number, so that an orchestrator can see that it is not root.
USER 65532:65532
EXPOSE 8080 9464
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=8s --start-period=10s --retries=3 \
    CMD ["/usr/local/bin/streamgauge", "health"]
ENTRYPOINT ["/usr/local/bin/streamgauge"]
