# syntax=docker/dockerfile:1
# The image for people with Docker; `make image` builds the same one without it.
#
#   docker build -t registry.invalid/traffic-operator:0.1.0 .
# On the machine that builds, whatever it builds for: hack/programs compiles for the other one, without emulation.
FROM --platform=$BUILDPLATFORM rust:1.95-bookworm@sha256:6258907abe69656e41cd992e0b705cdcfabcbbe3db374f92ed2d47121282d4a1 AS build
ARG TARGETARCH
# The build of the client of etcd runs protoc: hack/protoc names the same packages.
RUN apt-get update \
    && apt-get install -y --no-install-recommends protobuf-compiler libprotobuf-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    case "${TARGETARCH:-amd64}" in \
      amd64) triple=x86_64-unknown-linux-gnu ;; \
      arm64) triple=aarch64-unknown-linux-gnu ;; \
      *) echo "no image for architecture ${TARGETARCH}" >&2; exit 1 ;; \
    esac \
    && hack/programs "$triple" --locked \
    && mkdir -p /out/etc && mkdir -m 1777 /out/tmp \
    && cp "target/image/$triple/release/traffic-operator" "target/image/$triple/agent/traffic-operator-agent" /out/ \
    && printf '%s\n' 'root:x:0:0:root:/:/sbin/nologin' 'nonroot:x:65532:65532:nonroot:/:/sbin/nologin' > /out/etc/passwd \
    && printf '%s\n' 'root:x:0:' 'nonroot:x:65532:' > /out/etc/group

# Two programs, the operator and what it runs in pods: no shell, no package manager, no certificate authorities.
FROM scratch
COPY --from=build /out/ /
# By number: that is how Kubernetes checks runAsNonRoot.
USER 65532:65532
EXPOSE 8080 8081
ENTRYPOINT ["/traffic-operator"]
