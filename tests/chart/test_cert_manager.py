"""cert-manager for real: Issuer → Certificate → Secret → mounted → served → caBundle → the first review, and rotations.

The whole development cluster runs, with its two replicas on self-managed certificates at first: the change of the mode
is part of the test, and reviews continue all the time.
"""

from __future__ import annotations

import base64
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from certs.pem import fingerprint_of, is_signed_by, names_of, parse_bundle, parse_certificate
from tests.chart.conftest import (
    NAMESPACE,
    PATIENCE,
    RELEASE,
    WRONG,
    Helm,
    Plane,
    Reviews,
    lives,
    pods,
    roll_out,
    running,
    upgrade,
)

pytestmark = pytest.mark.chart

LEAF, AUTHORITY, SELF = f"{RELEASE}-webhook-issued", f"{RELEASE}-webhook-ca", f"{RELEASE}-webhook-tls"
CONFIGURATIONS = ("validatingwebhookconfiguration", "mutatingwebhookconfiguration")


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """A whole cluster, pods and all: it shadows the session's bare control plane."""
    with running(tmp_path_factory.mktemp("cert-manager") / "cluster", {}, bare=False) as plane:
        yield plane


@pytest.fixture(scope="module")
def cert_manager(plane: Plane, cert_manager_program: Path, cert_manager_definitions: list[Path]) -> Iterator[Path]:
    """A running cert-manager; returns its log."""
    for path in cert_manager_definitions:
        plane.kubectl("apply", "--server-side", "-f", str(path))
    log_path = plane.folder / "cert-manager.log"
    with log_path.open("wb") as log:
        argv = [str(cert_manager_program), f"--kubeconfig={plane.kubeconfig}"]
        process = subprocess.Popen(argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            yield log_path
        finally:
            process.terminate()
            process.wait(timeout=30)


@pytest.fixture(scope="module")
def switched(plane: Plane, cert_manager: Path, helm_program: Path, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """The release after its change from self-managed certificates to cert-manager, under reviews."""
    helm = Helm(helm_program, tmp_path_factory.mktemp("helm"), plane.kubeconfig)
    with Reviews(plane) as reviews:
        upgrade(helm, "certificates.mode=cert-manager")
        roll_out(plane)
        plane.wait(lambda: ours(plane) == {"cert-manager"}, "all serve the certificate of the Secret", PATIENCE)
        reviews.more(5)
    print(reviews.summary("change of the mode"))  # noqa: T201 - the proof
    assert reviews.failed == []
    return helm


def secret(plane: Plane, name: str) -> dict[str, bytes]:
    """Return a Secret's data; empty when there is none."""
    found = plane.get("secret", name, NAMESPACE) or {}
    return {key: base64.b64decode(value) for key, value in (found.get("data") or {}).items()}


def served_by(address: str) -> str:
    """Return the fingerprint of the certificate that an admission port shows."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection((address, 9443), timeout=5) as plain,
        context.wrap_socket(plain, server_hostname="x") as tls,
    ):
        shown = tls.getpeercert(binary_form=True)
    assert shown is not None
    return fingerprint_of(parse_certificate(ssl.DER_cert_to_PEM_cert(shown).encode()))


def ours(plane: Plane) -> set[str]:
    """Return what the replicas serve: `cert-manager` for the pair in its Secret, else what went wrong or `other`."""
    data = secret(plane, LEAF)
    if "ca.crt" not in data or "tls.crt" not in data:
        return {"no such Secret yet"}
    wanted = fingerprint_of(parse_certificate(data["tls.crt"]))
    found = set()
    for pod in pods(plane):
        try:
            found.add("cert-manager" if served_by(pod["status"]["podIP"]) == wanted else "other")
        except OSError as error:
            found.add(str(error))
    return found


def bundle(plane: Plane, kind: str) -> bytes:
    """Return a configuration's caBundle."""
    found = plane.get(kind, RELEASE)
    assert found is not None
    return base64.b64decode(found["webhooks"][0]["clientConfig"].get("caBundle", ""))


def test_issuer_certificate_secret_served_injected_reviewed(plane: Plane, switched: Helm) -> None:
    data = secret(plane, LEAF)
    leaf, authority = parse_certificate(data["tls.crt"]), parse_certificate(data["ca.crt"])
    assert f"{RELEASE}-webhook.{NAMESPACE}.svc" in names_of(leaf)
    assert is_signed_by(leaf, authority)
    for kind in CONFIGURATIONS:
        assert authority in parse_bundle(bundle(plane, kind))
    said = plane.apply(WRONG, check=False)
    assert 'The AIMArtifact "wrong" is invalid' in said
    assert "spec.compatibleWith" in said


def test_the_server_needs_no_right_on_secrets_and_writes_no_configuration(plane: Plane, switched: Helm) -> None:
    account = f"--as=system:serviceaccount:{NAMESPACE}:{RELEASE}"
    for verb, what in (
        ("get", f"secrets/{LEAF}"),
        ("patch", f"validatingwebhookconfigurations/{RELEASE}"),
        ("update", f"validatingwebhookconfigurations/{RELEASE}"),
    ):
        argv = ("auth", "can-i", verb, what, "-n", NAMESPACE, account)
        plane.wait(lambda argv=argv: plane.kubectl(*argv, check=False).stdout.strip() == "no", what)  # type: ignore[misc]


def test_a_new_certificate_is_served_without_a_restart_and_without_a_lost_review(plane: Plane, switched: Helm) -> None:
    before, alive = secret(plane, LEAF)["tls.crt"], lives(plane)
    with Reviews(plane) as reviews:
        plane.kubectl("delete", "secret", LEAF, "-n", NAMESPACE)
        plane.wait(lambda: secret(plane, LEAF).get("tls.crt", before) != before, "a new pair", PATIENCE)
        plane.wait(lambda: ours(plane) == {"cert-manager"}, "all serve it", PATIENCE)
        reviews.more(5)
    print(reviews.summary("new leaf"))  # noqa: T201 - the proof
    assert reviews.failed == []
    assert lives(plane) == alive


def test_a_new_ca_and_its_certificate(plane: Plane, switched: Helm) -> None:
    """A new authority does not renew leaves of the old one: both Secrets go, and the bundle holds both for a time."""
    before, alive = secret(plane, LEAF)["ca.crt"], lives(plane)
    with Reviews(plane) as reviews:
        plane.kubectl("delete", "secret", AUTHORITY, "-n", NAMESPACE)
        plane.wait(lambda: secret(plane, AUTHORITY).get("tls.crt", before) != before, "a new authority", PATIENCE)
        plane.kubectl("delete", "secret", LEAF, "-n", NAMESPACE)
        plane.wait(lambda: secret(plane, LEAF).get("ca.crt", before) != before, "a leaf of the new one", PATIENCE)
        plane.wait(lambda: ours(plane) == {"cert-manager"}, "all serve it", PATIENCE)
        reviews.more(5)
    print(reviews.summary("new authority"))  # noqa: T201 - the proof
    new = parse_certificate(secret(plane, LEAF)["ca.crt"])
    for kind in CONFIGURATIONS:
        assert {new, parse_certificate(before)} <= set(parse_bundle(bundle(plane, kind))), "both are trusted"
    assert reviews.failed == []
    assert lives(plane) == alive


def test_a_bundle_that_another_client_removes_comes_back(plane: Plane, switched: Helm) -> None:
    for kind in CONFIGURATIONS:
        change = '[{"op":"remove","path":"/webhooks/0/clientConfig/caBundle"}]'
        plane.kubectl("patch", kind, RELEASE, "--type=json", "-p", change)
        plane.wait(lambda kind=kind: bundle(plane, kind) != b"", f"{kind} has its bundle again", PATIENCE)  # type: ignore[misc]


def test_an_upgrade_keeps_the_injected_bundle(plane: Plane, switched: Helm) -> None:
    upgrade(switched, "webhooks.timeoutSeconds=4")
    for kind in CONFIGURATIONS:
        assert bundle(plane, kind)


def test_back_to_self_managed(plane: Plane, switched: Helm) -> None:
    """The server uses what it kept in its own Secret, and is trusted again."""
    upgrade(switched, "certificates.mode=self-managed")
    roll_out(plane)

    def reviewed() -> bool:
        return "spec.compatibleWith" in plane.apply(WRONG, check=False, args=("--dry-run=server",))

    wanted = fingerprint_of(parse_certificate(secret(plane, SELF)["tls.crt"]))
    addresses = [pod["status"]["podIP"] for pod in pods(plane)]
    plane.wait(lambda: {served_by(address) for address in addresses} == {wanted}, "its own is served", PATIENCE)
    plane.wait(reviewed, "reviews work", PATIENCE)
    assert parse_bundle(secret(plane, SELF)["ca.crt"]) == parse_bundle(bundle(plane, CONFIGURATIONS[0]))
