"""Ways to install the chart: the table behind golden files, strict validation and the checks of rights."""

from __future__ import annotations

from api.view import JsonObject

AUTHORITY = "-----BEGIN CERTIFICATE-----\nnot a real one\n-----END CERTIFICATE-----\n"

CASES: dict[str, JsonObject] = {
    "default": {},
    "admission-only": {"reconciler": {"enabled": False}},
    "reconciler-only": {"webhooks": {"enabled": False}},
    "namespaces": {"namespaces": ["team-a", "team-b"], "reconciler": {"nodes": False}},
    "cert-manager": {"certificates": {"mode": "cert-manager"}},
    "cert-manager-issuer": {
        "certificates": {
            "mode": "cert-manager",
            "extraNames": ["admission.example.org", "192.0.2.7", "2001:db8::7"],
            "certManager": {
                "issuerRef": {"group": "cert-manager.io", "kind": "ClusterIssuer", "name": "company"},
                "duration": "1h",
                "renewBefore": "5m",
            },
        }
    },
    "cert-manager-external": {  # the issuer of another program, and a name that YAML reads as an alias without quotes
        "certificates": {
            "mode": "cert-manager",
            "extraNames": ["*.admission.example.org"],
            "certManager": {
                "issuerRef": {"group": "awspca.cert-manager.io", "kind": "AWSPCAClusterIssuer", "name": "company"}
            },
        }
    },
    "provided": {
        "certificates": {"mode": "provided", "secretName": "our-pair", "caBundle": AUTHORITY},
        "metrics": {"protected": True, "serviceMonitor": {"enabled": True}},
    },
    "pod-monitor": {"metrics": {"service": False, "podMonitor": {"enabled": True, "interval": "15s"}}},
    "everything": {
        "fullnameOverride": "adapters",
        "commonLabels": {"team": "inference"},
        "image": {"registry": "registry.example.org", "digest": f"sha256:{'0' * 64}", "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "registry"}],
        "replicas": 3,
        "webhooks": {
            "failurePolicy": "Ignore",
            "timeoutSeconds": 3,
            "excludedNamespaces": ["sandbox"],
            "annotations": {"example.org/owner": "platform"},
            "clientCA": AUTHORITY,
        },
        "service": {"port": 8443, "annotations": {"example.org/owner": "platform"}},
        "console": {"enabled": True, "access": "token"},
        "settings": {"refreshInterval": "5s", "workers": 8, "logFormat": "json", "strictBase": True},
        "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy.example.org:3128"}],
        "serviceAccount": {"annotations": {"example.org/role": "adapters"}},
        "rbac": {"ownerReferences": True},
        "priorityClassName": "system-cluster-critical",
        "podAnnotations": {"example.org/a": "b"},
        "podLabels": {"example.org/c": "d"},
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"key": "infra", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "topologySpread": {"whenUnsatisfiable": "DoNotSchedule"},
        "networkPolicy": {
            "enabled": True,
            "admissionFrom": [{"ipBlock": {"cidr": "192.0.2.0/24"}}],
            "metricsFrom": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
            "egress": [{"ports": [{"port": 6443, "protocol": "TCP"}]}],
        },
        "metrics": {
            "protected": True,
            "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
            "rules": {"enabled": True},
            "dashboard": {"enabled": True, "annotations": {"grafana_folder": "AIM"}},
        },
        "clusterRuntimeConfig": {"enabled": True, "spec": {"adapterRuntime": {"maxRank": 64}}},
    },
}
# `helm template` knows no cluster: the tests declare that these kinds exist, as they do from the first upgrade on.
API_VERSIONS = ("--api-versions=aim.eai.amd.com/v1alpha1/AIMClusterRuntimeConfig",)
