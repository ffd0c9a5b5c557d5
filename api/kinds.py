"""Every kind that this project reads or writes, as its REST address."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

AIM_GROUP = "aim.eai.amd.com"


@dataclass(frozen=True, slots=True)
class Kind:
    """A served kind: what is needed to build its URL and its `apiVersion`."""

    group: str  # "" is the core group
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    def __hash__(self) -> int:
        """Hash one field only: kinds are keys of look-ups in every review, and a dataclass would hash all five."""
        return hash(self.plural)

    @property
    def api_version(self) -> str:
        """`group/version`, or the bare version for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """Return the URL path of the collection, an object, or one of its subresources.

        Args: without `namespace` a namespaced kind's path spans all namespaces (list and watch only).
        Source: Kubernetes API concepts, "Resource URIs".
        """
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        if self.namespaced and namespace is not None:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        if name is not None:
            parts.append(quote(name, safe=":"))
        if subresource is not None:
            parts.append(subresource)
        return "/".join(parts)


AIM_SERVICE = Kind(AIM_GROUP, "v1alpha2", "aimservices", "AIMService")
AIM_SERVICE_V1ALPHA1 = Kind(AIM_GROUP, "v1alpha1", "aimservices", "AIMService")
AIM_ARTIFACT = Kind(AIM_GROUP, "v1alpha1", "aimartifacts", "AIMArtifact")
AIM_RUNTIME_CONFIG = Kind(AIM_GROUP, "v1alpha1", "aimruntimeconfigs", "AIMRuntimeConfig")
AIM_CLUSTER_RUNTIME_CONFIG = Kind(AIM_GROUP, "v1alpha1", "aimclusterruntimeconfigs", "AIMClusterRuntimeConfig", False)
AIM_PROFILE = Kind(AIM_GROUP, "v1alpha2", "aimprofiles", "AIMProfile")
AIM_CLUSTER_PROFILE = Kind(AIM_GROUP, "v1alpha2", "aimclusterprofiles", "AIMClusterProfile", False)
AIM_PROFILE_CACHE = Kind(AIM_GROUP, "v1alpha2", "aimprofilecaches", "AIMProfileCache")
AIM_MODEL = Kind(AIM_GROUP, "v1alpha1", "aimmodels", "AIMModel")
AIM_CLUSTER_MODEL = Kind(AIM_GROUP, "v1alpha1", "aimclustermodels", "AIMClusterModel", False)
AIM_SERVICE_TEMPLATE = Kind(AIM_GROUP, "v1alpha1", "aimservicetemplates", "AIMServiceTemplate")
AIM_CLUSTER_SERVICE_TEMPLATE = Kind(
    AIM_GROUP, "v1alpha1", "aimclusterservicetemplates", "AIMClusterServiceTemplate", False
)
AIM_TEMPLATE_CACHE = Kind(AIM_GROUP, "v1alpha1", "aimtemplatecaches", "AIMTemplateCache")

INFERENCE_SERVICE = Kind("serving.kserve.io", "v1beta1", "inferenceservices", "InferenceService")

JOB = Kind("batch", "v1", "jobs", "Job")
POD = Kind("", "v1", "pods", "Pod")
PERSISTENT_VOLUME_CLAIM = Kind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
CONFIG_MAP = Kind("", "v1", "configmaps", "ConfigMap")
SECRET = Kind("", "v1", "secrets", "Secret")
SERVICE = Kind("", "v1", "services", "Service")
NODE = Kind("", "v1", "nodes", "Node", False)
EVENT = Kind("", "v1", "events", "Event")
DEPLOYMENT = Kind("apps", "v1", "deployments", "Deployment")
LEASE = Kind("coordination.k8s.io", "v1", "leases", "Lease")
STORAGE_CLASS = Kind("storage.k8s.io", "v1", "storageclasses", "StorageClass", False)
VALIDATING_WEBHOOK_CONFIGURATION = Kind(
    "admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", False
)
MUTATING_WEBHOOK_CONFIGURATION = Kind(
    "admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", False
)

AIM_KINDS = (
    AIM_SERVICE,
    AIM_ARTIFACT,
    AIM_RUNTIME_CONFIG,
    AIM_CLUSTER_RUNTIME_CONFIG,
    AIM_PROFILE,
    AIM_CLUSTER_PROFILE,
    AIM_PROFILE_CACHE,
    AIM_MODEL,
    AIM_CLUSTER_MODEL,
    AIM_SERVICE_TEMPLATE,
    AIM_CLUSTER_SERVICE_TEMPLATE,
    AIM_TEMPLATE_CACHE,
)
