# syntax=docker/dockerfile:1
# The image of the server and of its Jobs. tests/chart/test_image.py runs these steps in a clean directory.
#
# The tag names one release of Python on one release of Debian. This file names no digest, because none could be
# verified when it was written. Pin the digest as well where the registry can be reached:
#   docker build --build-arg PYTHON_IMAGE=python:3.11.14-slim-bookworm@sha256:… .
ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
COPY requirements.lock requirements-build.lock ./
# Wheels only, each by its hash: nothing is compiled, and no set-up script runs. The environment gets no pip of its own.
RUN python -m venv --without-pip /opt/aim-adapters && \
    python -m pip --python /opt/aim-adapters/bin/python install --require-hashes --only-binary :all: -r requirements.lock && \
    python -m venv /src/.build && \
    /src/.build/bin/python -m pip install --require-hashes --only-binary :all: -r requirements-build.lock
COPY pyproject.toml README.md LICENSE ./
COPY api api
COPY rules rules
COPY kube kube
COPY webhooks webhooks
COPY reconcile reconcile
COPY disk disk
COPY certs certs
COPY console console
COPY app app
COPY cli cli
RUN /src/.build/bin/python -m pip wheel --no-deps --no-build-isolation --wheel-dir /src/dist . && \
    python -m pip --python /opt/aim-adapters/bin/python install --no-deps --no-index --find-links /src/dist aim-adapters

FROM ${PYTHON_IMAGE}
ARG PYTHON_IMAGE
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="aim-adapters" \
      org.opencontainers.image.description="Admission webhooks and a reconciler that serve LoRA adapters on AMD GPUs, with KServe" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${PYTHON_IMAGE}"
# No tool that installs anything is left in the result, nor the copy of pip that Python could bring one back from.
RUN python -m pip uninstall --yes --root-user-action ignore setuptools wheel pip && \
    rm -rf /usr/local/lib/python3.11/ensurepip
COPY --from=build /opt/aim-adapters /opt/aim-adapters
# HOME is where clients of hub and S3 look for files of their own: an emptyDir in our pods, whose root is read-only.
ENV PATH=/opt/aim-adapters/bin:/usr/local/bin:/usr/bin:/bin \
    HOME=/tmp \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
WORKDIR /tmp
# A number, so that runAsNonRoot can be checked without the image's list of users.
USER 1000:1000
EXPOSE 9443 8080
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/healthz', timeout=4)"]
ENTRYPOINT ["aim-adapters"]
CMD ["serve"]
