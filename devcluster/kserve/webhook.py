"""The two admission webhooks: their TLS server on loopback, and their registration."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import ssl
from datetime import UTC, datetime
from pathlib import Path

from api.view import JsonObject
from devcluster.by_path import Kube
from devcluster.httpd import Request, Response, Server
from devcluster.kserve import admission
from devcluster.kserve.words import API_VERSION, FIELD_MANAGER, GROUP, PLURAL, Settings
from devcluster.pki import Authority
from kube.errors import ApiError

log = logging.getLogger(__name__)

CONFIGURATION = f"inferenceservice.{GROUP}"
DEFAULTER = "inferenceservice.kserve-webhook-server.defaulter"
VALIDATOR = "inferenceservice.kserve-webhook-server.validator"
MUTATE_PATH = "/mutate-serving-kserve-io-v1beta1-inferenceservice"
VALIDATE_PATH = "/validate-serving-kserve-io-v1beta1-inferenceservice"
_REGISTRATIONS = "/apis/admissionregistration.k8s.io/v1"
_ACTIVE_WITHIN_S = 30.0


class Webhooks:
    """Answers admission reviews with `admission`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._server = Server(self._handle)
        self._ca = b""
        self._base = ""

    async def start(self, folder: Path, host: str, port: int) -> None:
        """Make a CA and a serving certificate in `folder`, and listen. Raises: OSError."""
        authority = Authority.ensure(folder)
        pair = authority.issue("webhook", host, hosts=(host,), now=datetime.now(UTC))
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(pair.certificate, pair.key)
        self._ca = authority.pem
        self._base = f"https://{host}:{await self._server.start(host, port, tls=tls)}"

    async def stop(self) -> None:
        """Stop answering; the registration stays, as it does when the real controller is down."""
        await self._server.close()

    async def register(self, kube: Kube) -> None:
        """Write both webhook configurations and wait until the API server uses them. Raises: ApiError."""
        for kind, plural, name, path in (
            ("Mutating", "mutatingwebhookconfigurations", DEFAULTER, MUTATE_PATH),
            ("Validating", "validatingwebhookconfigurations", VALIDATOR, VALIDATE_PATH),
        ):
            body = self._configuration(kind, name, path)
            await kube.apply(
                f"{_REGISTRATIONS}/{plural}/{CONFIGURATION}", body, field_manager=FIELD_MANAGER, force=True
            )
        await _until_active(kube)

    def _configuration(self, kind: str, name: str, path: str) -> JsonObject:
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": f"{kind}WebhookConfiguration",
            "metadata": {"name": CONFIGURATION},
            "webhooks": [
                {
                    "name": name,
                    "admissionReviewVersions": ["v1"],
                    "clientConfig": {"url": self._base + path, "caBundle": base64.b64encode(self._ca).decode()},
                    "failurePolicy": "Fail",
                    "sideEffects": "None",
                    "timeoutSeconds": 10,
                    "rules": [
                        {
                            "apiGroups": [GROUP],
                            "apiVersions": ["v1beta1"],
                            "operations": ["CREATE", "UPDATE"],
                            "resources": [PLURAL],
                        }
                    ],
                }
            ],
        }

    async def _handle(self, request: Request) -> Response:
        if request.method != "POST" or request.path not in {MUTATE_PATH, VALIDATE_PATH}:
            return Response.of({"error": "not found"}, 404)
        try:
            review = request.json()["request"]
            mutating = request.path == MUTATE_PATH
            answer = mutation(review, self._settings) if mutating else validation(review, self._settings)
        except (KeyError, TypeError, ValueError) as error:
            return Response.of({"error": f"not an admission review: {error}"}, 400)
        return Response.of({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer})


def mutation(review: JsonObject, settings: Settings) -> JsonObject:
    """Return the response of the mutating webhook for one request."""
    isvc = review["object"]
    try:
        operations = admission.patch_of(isvc, admission.default(isvc, settings))
    except admission.PanicError as panic:
        return _refused(review, 500, str(panic), "")
    answer = {"uid": review["uid"], "allowed": True}
    if operations:
        patch = base64.b64encode(json.dumps(operations).encode()).decode()
        answer |= {"patchType": "JSONPatch", "patch": patch}
    return answer


def validation(review: JsonObject, settings: Settings) -> JsonObject:
    """Return the response of the validating webhook for one request."""
    problem = admission.refusal(review["object"], review.get("oldObject"), settings)
    return _refused(review, 403, problem, "Forbidden") if problem else {"uid": review["uid"], "allowed": True}


def _refused(review: JsonObject, code: int, message: str, reason: str) -> JsonObject:
    status = {"code": code, "message": message, **({"reason": reason} if reason else {})}
    return {"uid": review["uid"], "allowed": False, "status": status}


async def _until_active(kube: Kube) -> None:
    """Wait until a dry run shows both webhooks' work: a new configuration takes a moment. Raises: TimeoutError."""
    path = f"/apis/{API_VERSION}/namespaces/default/{PLURAL}"
    async with asyncio.timeout(_ACTIVE_WITHIN_S):
        while not await _refuses(kube, path):  # noqa: ASYNC110 (nothing announces that a webhook is active)
            await asyncio.sleep(0.05)


async def _refuses(kube: Kube, path: str) -> bool:
    """Send objects that only the active pair of webhooks refuses: no default name, then a negative number."""
    probe = {
        "apiVersion": API_VERSION,
        "kind": "InferenceService",
        "metadata": {"name": "probe"},
        "spec": {"predictor": {"minReplicas": -1, "containers": [{"image": "x"}]}},
    }
    try:
        await kube.create(path, probe, {"dryRun": "All"})
    except ApiError as error:
        if error.status != 403 or VALIDATOR not in error.message:
            return False
    else:
        return False
    probe["spec"] = {"predictor": {"containers": [{"image": "x"}]}}
    try:
        made = await kube.create(path, probe, {"dryRun": "All"})
    except ApiError:
        return False
    return bool(made["spec"]["predictor"]["containers"][0].get("name"))
