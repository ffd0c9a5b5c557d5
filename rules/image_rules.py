"""The image that download Jobs run (docs/contract.md, Job pods)."""

from __future__ import annotations

from collections.abc import Iterator

from api import view
from api.errors import Cause, FieldError
from api.kinds import AIM_ARTIFACT, AIM_CLUSTER_RUNTIME_CONFIG, AIM_RUNTIME_CONFIG, AIM_TEMPLATE_CACHE
from api.reasons import Reason
from rules.images import is_allowed
from rules.registry import Basis, Example, Output, rule
from rules.seen import Seen
from rules.verdict import Finding


@rule(
    AIM_ARTIFACT,
    AIM_RUNTIME_CONFIG,
    AIM_CLUSTER_RUNTIME_CONFIG,
    AIM_TEMPLATE_CACHE,
    reason=Reason.DOWNLOAD_IMAGE_NOT_ALLOWED,
    fields="spec.modelDownloadImage, spec.artifact.modelDownloadImage, spec.downloadImage",
    basis=Basis.OBJECT,
    refused=Example(
        "spec: {modelDownloadImage: evil.example/x, downloadImage: evil.example/x, "
        "artifact: {modelDownloadImage: evil.example/x}}",
        allowed_images=("registry.example/tools",),
    ),
    passes=Example(
        "spec: {modelDownloadImage: r.example/tools/a:1, downloadImage: r.example/tools/a, "
        "artifact: {modelDownloadImage: r.example/tools/a}}",
        allowed_images=("r.example/tools",),
    ),
)
def download_image_not_allowed(seen: Seen) -> Iterator[Output]:
    """The image of a download Job begins with a prefix of the setting `allowedDownloadImages`, where it is set."""
    for path in (("modelDownloadImage",), ("artifact", "modelDownloadImage"), ("downloadImage",)):
        image = view.text(seen.spec, *path)
        if image and not is_allowed(image, seen.context.allowed_images):
            allowed = ", ".join(seen.context.allowed_images)
            fix = f"use an image that begins with one of: {allowed}"
            detail = "the administrator does not allow this image for download Jobs"
            field = f"spec.{'.'.join(path)}"
            yield Finding(FieldError(field, Reason.DOWNLOAD_IMAGE_NOT_ALLOWED, Cause.FORBIDDEN, detail, image, fix))
