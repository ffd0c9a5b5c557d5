"""The reasons of conditions and adapter states: what each means, and what to do about it. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Meaning:
    """`where`: the condition or field that carries it; an empty fix: nothing is wrong, or waiting is enough."""

    where: str
    means: str
    fix: str = ""


_WAIT = "wait; it passes by itself"

CONDITIONS: dict[str, Meaning] = {
    # -- Adapters
    "ParentLacksAdapterDisk": Meaning(
        "Adapters",
        "The base model has no adapter disk yet, or is not resolved yet.",
        "look at the base artifact's conditions",
    ),
    "AdapterSubtreeProvisioning": Meaning(
        "Adapters",
        "The service's directory on the adapter disk is being created.",
        _WAIT + "; if not, look at its subtree-sync Job",
    ),
    "AdapterConfigInvalid": Meaning(
        "Adapters, ConfigValid",
        "The adapters cannot be served as they are declared.",
        "correct the fields that the message names",
    ),
    "AdaptersStaging": Meaning("Adapters", "The directory is ready, some adapter is not on the disk yet.", _WAIT),
    "AdaptersStaged": Meaning("Adapters", "Every declared adapter is on the disk."),
    # -- ConfigValid
    "ConfigValid": Meaning("ConfigValid", "The spec is valid."),
    "ReferenceNotFound": Meaning(
        "ConfigValid, CacheReady", "Something that the service names does not exist.", "create it, or correct the name"
    ),
    # -- CacheReady
    "ReferenceUnreadable": Meaning(
        "CacheReady",
        "Something that the service names could not be read.",
        "check the controller's rights (RBAC) and its log",
    ),
    "TemplateAmbiguous": Meaning(
        "CacheReady",
        "Several templates fit the model.",
        "set spec.defaultServiceTemplate of the model, or create the service anew with spec.template.name",
    ),
    "TemplateNotFound": Meaning("CacheReady", "No template fits the model.", "create an AIMServiceTemplate for it"),
    "NoModelSources": Meaning("CacheReady", "The profile names no weights to serve.", "give it aimId and modelSources"),
    "NothingToCache": Meaning("CacheReady", "The image brings its own model."),
    "AllCachesReady": Meaning("CacheReady, ArtifactsReady", "The base model is complete in its cache."),
    "CreatingCaches": Meaning("CacheReady, ArtifactsReady", "The cache is being created.", _WAIT),
    "CachesNotReady": Meaning(
        "CacheReady, ArtifactsReady", "The base model is not in its cache yet.", "look at the base artifact"
    ),
    "NoCaches": Meaning(
        "ArtifactsReady", "The cache has nothing to hold.", "give its profile or template modelSources"
    ),
    "ArtifactTerminating": Meaning("ArtifactsReady", "An artifact is being deleted; its successor follows.", _WAIT),
    # -- InferenceServiceReady, Ready
    "Gated": Meaning("InferenceServiceReady", "What the server needs is not there yet.", "see the other conditions"),
    "Creating": Meaning("InferenceServiceReady", "The InferenceService is being created.", _WAIT),
    "Starting": Meaning("InferenceServiceReady", "The model server is starting.", _WAIT),
    "InferenceServiceReady": Meaning("InferenceServiceReady", "The model server answers."),
    "Serving": Meaning("Ready", "The model server answers."),
    "NameTaken": Meaning(
        "InferenceServiceReady",
        "An InferenceService of this name belongs to someone else.",
        "delete or rename that one, or rename the service",
    ),
    "InferenceServiceRefused": Meaning(
        "InferenceServiceReady", "The API server refused our InferenceService.", "correct what the message names"
    ),
    "ReconcileFailed": Meaning(
        "InferenceServiceReady", "KServe could not make the Deployment.", "correct what the message names"
    ),
    "CrashLoopBackOff": Meaning(
        "InferenceServiceReady", "The model server ends again and again.", "read its log: the message has the command"
    ),
    "NoMatchingNode": Meaning(
        "InferenceServiceReady",
        "No node offers the accelerator.",
        "add or label such a node, or choose a profile for another accelerator",
    ),
    # -- waiting, and what Kubernetes and KServe say of pods
    "ImageUnknown": Meaning(
        "Ready", "Neither profile, model nor service names an image.", "give the profile (or model) an image"
    ),
    "RuntimeConfigUnreadable": Meaning(
        "Ready, status.adapters[].lastError",
        "The RuntimeConfig could not be read, so credentials and defaults are not known.",
        "check the controller's rights (RBAC) and its log",
    ),
    "RuntimeConfigNotFound": Meaning(
        "status.adapters[].lastError",
        "The RuntimeConfig that the adapter's artifact names does not exist.",
        "create it, or correct runtimeConfigName of the artifact",
    ),
    "RankCeilingUnknown": Meaning(
        "status.adapters[].lastError",
        "No valid rank ceiling is known: what sets it is not valid, or the RuntimeConfig cannot be read.",
        "mend what ConfigValid says; else check the controller's rights (RBAC) and its log",
    ),
    "RollingOut": Meaning(
        "InferenceServiceReady", "Pods are being replaced, none is ready at the moment.", "wait; the message says why"
    ),
    "ScaledToZero": Meaning(
        "InferenceServiceReady, Ready", "No replicas are asked for.", "raise spec.replicas to serve"
    ),
    "Stopped": Meaning(
        "InferenceServiceReady, Ready",
        "KServe has taken the pods away: somebody put its annotation to stop on the InferenceService.",
        "take the annotation off again: kubectl annotate inferenceservice NAME serving.kserve.io/stop-",
    ),
    "Terminating": Meaning(
        "InferenceServiceReady", "The InferenceService is being deleted and is made anew afterwards.", _WAIT
    ),
    "ClaimTerminating": Meaning(
        "CacheStorageReady, AdapterDiskReady, Ready of a model artifact",
        "The claim is being deleted; it goes, and is made anew, when no pod mounts it any more.",
        "remove or restart the pods that mount it",
    ),
    "ImagePullBackOff": Meaning(
        "InferenceServiceReady", "The model server's image cannot be pulled.", "check image name and pull secrets"
    ),
    "InvalidImageName": Meaning(
        "InferenceServiceReady", "The image name cannot be parsed.", "correct the image of the profile or model"
    ),
    "CreateContainerConfigError": Meaning(
        "InferenceServiceReady",
        "Something that the container refers to is not there, a Secret for example.",
        "create what the message names",
    ),
    "CreateContainerError": Meaning(
        "InferenceServiceReady", "The node cannot make the container.", "see the pod's events (kubectl describe pod)"
    ),
    "RunContainerError": Meaning(
        "InferenceServiceReady", "The node cannot start the container.", "see the pod's events (kubectl describe pod)"
    ),
    "Unschedulable": Meaning(
        "InferenceServiceReady, status.adapters[].lastError",
        "No node takes a pod.",
        "free or add accelerators; the message has the scheduler's words",
    ),
    "MinimumReplicasUnavailable": Meaning(
        "InferenceServiceReady", "Fewer replicas than wanted are ready.", _WAIT + "; if not, look at the pods"
    ),
    "ProgressDeadlineExceeded": Meaning(
        "InferenceServiceReady", "The Deployment made no progress in time.", "look at its pods and their events"
    ),
    "FailedCreate": Meaning(
        "InferenceServiceReady", "Pods cannot be created (quota, admission).", "correct what the message names"
    ),
    # -- profiles, models, templates
    "ModelValid": Meaning("Ready of a model", "The model may be referred to."),
    "TemplateValid": Meaning("Ready of a template", "Valid; nodes are not watched, or it asks for no accelerator."),
    "NodesMatch": Meaning("Ready of a profile or template", "At least one node offers the accelerator."),
    "NodesNotWatched": Meaning(
        "Ready of a profile", "Nodes are not watched (chart value reconciler.nodes, or namespaced), so nobody knows."
    ),
    # -- base models and adapters as artifacts
    "ModelCached": Meaning("Ready of a model artifact", "The bytes are complete."),
    "MeasuringSource": Meaning("Ready of a model artifact", "The size of the source is being found out.", _WAIT),
    "Downloading": Meaning("Ready of a model artifact", "The bytes are being downloaded.", _WAIT),
    "DownloadBlocked": Meaning(
        "Ready of a model artifact", "The download's pod cannot start.", "correct what the message names"
    ),
    "Pending": Meaning("Ready of a model artifact", "The claim and the download are about to start.", _WAIT),
    "ConfigInvalid": Meaning(
        "Ready of an artifact", "Its spec is invalid.", "correct the fields that the message names"
    ),
    "AdapterValidated": Meaning("Ready of an adapter artifact", "The adapter may be declared by services."),
    "ParentArtifactNotFound": Meaning(
        "Ready of an adapter artifact",
        "The parent artifact does not exist yet.",
        "create it, or use compatibleWith instead",
    ),
    "ParentArtifactNotModel": Meaning(
        "Ready of an adapter artifact",
        "The parent artifact is itself an adapter.",
        "name a base model, or use compatibleWith",
    ),
    "ClaimBound": Meaning("CacheStorageReady, AdapterDiskReady", "The claim is bound."),
    "ClaimPending": Meaning("CacheStorageReady, AdapterDiskReady", "The claim is not bound yet.", _WAIT),
    "ClaimUnbound": Meaning(
        "CacheStorageReady, AdapterDiskReady",
        "The claim stays unbound.",
        "use a storage class that can do ReadWriteMany (storage.adapterDiskStorageClassName of a RuntimeConfig)",
    ),
    "ClaimProvisioningFailed": Meaning(
        "CacheStorageReady, AdapterDiskReady",
        "The provisioner cannot make the volume.",
        "use a storage class that can do ReadWriteMany (storage.adapterDiskStorageClassName of a RuntimeConfig)",
    ),
    # -- adapters of a service
    "AdapterArtifactNotFound": Meaning(
        "status.adapters[].lastError",
        "No AIMArtifact of that name exists in the namespace.",
        "apply it; it is picked up at once",
    ),
    "AdapterNotListed": Meaning(
        "status.adapters[].lastError",
        "The adapter is on the disk, but a ready server does not list it.",
        "read the pod's log for the refusal; images before 0.13 load no adapters",
    ),
    "ModelListUnreadable": Meaning(
        "status.adapters[].lastError",
        "The adapter is on the disk, but a ready server gives no list of its models (`GET /v1/models`).",
        "read the pod's log; let the controller reach its port 8000; use an image that answers as OpenAI's API does",
    ),
    "RestartRequired": Meaning(
        "status.adapters[].lastError",
        "The disk has new content, the pods keep the old one.",
        "restart the pods (kubectl rollout restart deployment)",
    ),
    "AdapterHeldForUnload": Meaning(
        "status.adapters[].lastError", "New content waits until no replica lists the old one.", _WAIT
    ),
    "JobFailed": Meaning(
        "status.adapters[].lastError, download.reason",
        "A Job ended without saying why.",
        "read the Job's events and log; it is tried again",
    ),
    "JobDeadlineExceeded": Meaning(
        "status.adapters[].lastError, download.reason",
        "A Job ran past its deadline.",
        "check the source's speed, or raise the deadline in the settings",
    ),
    # -- said by `why` alone
    "ServiceNotFound": Meaning("why", "There is no such AIMService.", "check the name and the namespace (-n)"),
    "AdapterNotDeclaredByService": Meaning(
        "why", "The service does not declare this adapter.", "kubectl aim-adapters add SERVICE ADAPTER"
    ),
    "ServiceTerminating": Meaning("why", "The service is being deleted.", "wait for it to go, then apply it again"),
    "ReconciliationPaused": Meaning(
        "why",
        "The annotation aim.eai.amd.com/reconciliation-paused holds it.",
        "remove the annotation",
    ),
    "ControllerBehind": Meaning(
        "why", "The controller has not handled the newest spec.", "check that aim-adapters runs, and its log"
    ),
    "ControllerSilent": Meaning(
        "why",
        "No controller holds the lease.",
        "check that aim-adapters runs: kubectl get pods,lease -A | grep aim-adapters",
    ),
    "DiskNotBound": Meaning("why", "The adapter disk's claim is not bound.", "kubectl describe pvc of the claim"),
    "StagingBlocked": Meaning("why", "The staging Job's pod cannot start.", "correct what the message names"),
    "StagingWaiting": Meaning("why", "The adapter waits for its turn.", _WAIT),
    "StagingRuns": Meaning("why", "The adapter is being downloaded.", _WAIT),
    "LoadingSoon": Meaning("why", "The adapter is on the disk; the server loads it within a refresh interval.", _WAIT),
    "SomeReplicasLack": Meaning("why", "Not every replica lists the adapter yet.", _WAIT),
    "NoPods": Meaning(
        "why",
        "The server's Deployment cannot make pods (quota, admission).",
        "correct what the message names: raise the quota of the namespace, for example",
    ),
    "PodPending": Meaning(
        "why", "A pod of the server cannot be scheduled or started.", "correct what the message names"
    ),
}

EVENTS: dict[str, Meaning] = {
    "AdapterPending": Meaning("AIMService", "An adapter waits again: its artifact, disk or turn is missing.", _WAIT),
    "AdapterDownloading": Meaning("AIMService", "An adapter's staging runs."),
    "AdapterDownloaded": Meaning("AIMService", "An adapter is on the disk."),
    "AdapterLoaded": Meaning("AIMService", "Every ready replica lists the adapter."),
    "AdapterFailed": Meaning(
        "AIMService", "An adapter is invalid or its staging failed; the message has the reason.", "see that reason"
    ),
    "AdapterLoadRejected": Meaning(
        "AIMService",
        "A ready server does not list the adapter although it had the time.",
        "read the log of the pod that the message names",
    ),
    "AdapterDeleting": Meaning("AIMService", "An adapter was removed and is being unloaded."),
    "AdapterUnloadOverdue": Meaning(
        "AIMService",
        "A removed adapter is off the disk, but a server still listed it when the wait (unloadGrace) was over.",
        "read the server's log; a restart of the pod unloads it",
    ),
    "AdapterMaxRankChanged": Meaning("AIMService", "The rank ceiling changed; the pods are replaced."),
    "PredictorChanged": Meaning("AIMService", "What the pods run changed; they are replaced. The message says what."),
    "InferenceServiceRefused": Meaning(
        "AIMService", "The API server refused our InferenceService.", "correct what the message names"
    ),
    "ModelFetched": Meaning("AIMArtifact", "The base model is complete in its cache."),
    "DiskReaped": Meaning("AIMArtifact", "A sweep of the adapter disk ended; the message says what it freed."),
    "SweepDryRun": Meaning("AIMArtifact", "A dry run of the sweep was started, or ended."),
    "JobFailed": Meaning("AIMArtifact", "A download or sweep ended without saying why.", "read the Job's events"),
    "JobDeadlineExceeded": Meaning("AIMArtifact", "A download or sweep ran past its deadline.", "see its condition"),
}
"""Events by reason; `where`: the kind that they are about. Failed downloads and sweeps also carry the disk reasons."""
