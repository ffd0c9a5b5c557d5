"""Every reason that a disk command can end with: what it means and what to do. docs/reasons.md is made from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Group = Literal["success", "source", "disk", "adapter", "warning", "command"]


@dataclass(frozen=True, slots=True)
class Reason:
    """One documented reason; `advice` is a clause that completes a message: "…; set HF_TOKEN …"."""

    name: str
    group: Group
    meaning: str
    advice: str = ""
    retriable: bool = False  # it can pass without anybody doing anything


_REASONS = (
    # -- success
    Reason("AdapterStaged", "success", "The adapter was fetched or taken from the store, checked, and promoted."),
    Reason("AlreadyStaged", "success", "The done-marker and the live directory say that it was staged before."),
    Reason(
        "AdapterHeldForUnload",
        "success",
        "The content under a live name changed: the old directory was moved away, the new one waits in the store "
        "until no server lists the name any more.",
    ),
    Reason("SubtreeSynced", "success", "The service's subtree exists and holds nothing that is not declared."),
    Reason("SyncSuperseded", "success", "The disk remembers a newer declared set: this older sync changed nothing."),
    Reason("DiskReaped", "success", "What no living service needs was removed (or listed, in a dry run)."),
    Reason("ModelFetched", "success", "The base model is complete in its cache claim."),
    Reason("ModelMeasured", "success", "The size of what would be fetched is known; nothing was written."),
    # -- sources
    Reason(
        "SourceUnauthorized",
        "source",
        "The source did not accept the credentials (401), or none were given.",
        "check the token or keys in the Secret that the artifact's env or the s3 block names",
    ),
    Reason(
        "SourceForbidden",
        "source",
        "The credentials are valid but may not read this (403).",
        "give the token or key read access to it",
    ),
    Reason(
        "SourceGated",
        "source",
        "The repository is gated and this account has not been let in.",
        "accept the repository's terms with the account of HF_TOKEN, or use a token of an account that did",
    ),
    Reason(
        "SourceRepositoryNotFound",
        "source",
        "The hub knows no such repository, or hides it from these credentials.",
        "check the spelling of sourceUri; a private repository needs HF_TOKEN",
    ),
    Reason(
        "SourceRevisionNotFound",
        "source",
        "The repository has no such branch, tag or commit.",
        "check what stands after @ in sourceUri",
    ),
    Reason("SourceBucketNotFound", "source", "There is no such bucket.", "check the bucket and the endpoint"),
    Reason(
        "SourcePrefixEmpty",
        "source",
        "Nothing lies below the prefix or subfolder, or the filter leaves nothing.",
        "check the folder in sourceUri and downloadFilter",
    ),
    Reason(
        "SourceUriInvalid",
        "source",
        "The source URI cannot be parsed.",
        "use hf://org/name[/subfolder][@revision] or s3://bucket/prefix/",
    ),
    Reason(
        "SourceRateLimited",
        "source",
        "The source asks to wait (429 or SlowDown).",
        "it is tried again by itself; a token raises the hub's limits",
        retriable=True,
    ),
    Reason(
        "SourceServerError",
        "source",
        "The source failed on its side (5xx).",
        "it is tried again by itself",
        retriable=True,
    ),
    Reason(
        "SourceDnsFailed",
        "source",
        "The endpoint's name did not resolve.",
        "check the endpoint's spelling and the cluster's DNS; it is tried again by itself",
        retriable=True,
    ),
    Reason(
        "SourceTlsFailed",
        "source",
        "The endpoint's certificate was not accepted.",
        "give the CA in tls.caBundleRef of the s3 block, or mend the certificate",
    ),
    Reason(
        "SourceTimeout",
        "source",
        "The source did not answer in time.",
        "check network policies and proxies; it is tried again by itself",
        retriable=True,
    ),
    Reason(
        "SourceConnectionLost",
        "source",
        "The connection was refused or cut.",
        "what arrived is kept and it is tried again by itself",
        retriable=True,
    ),
    Reason(
        "SourceChanged",
        "source",
        "The source changed while it was read.",
        "it starts over with the new content",
        retriable=True,
    ),
    Reason(
        "SourceEndpointRefused",
        "source",
        "The endpoint is a link-local or metadata address.",
        "use another endpoint, or let the cluster's administrator allow link-local endpoints",
    ),
    Reason(
        "SourceNameRefused",
        "source",
        "A file name in the source is unsafe on a disk, or two names collide.",
        "rename the file in the source, or leave it out with downloadFilter.exclude",
    ),
    Reason(
        "SourceTooManyFiles",
        "source",
        "The source lists more files than any adapter or model has.",
        "point sourceUri at the folder of the adapter itself",
    ),
    Reason(
        "SourceResponseInvalid",
        "source",
        "The source answered something that its protocol does not allow.",
        "check that the endpoint really is a hub or an S3 service",
    ),
    Reason(
        "SourceCredentialsUnreadable",
        "source",
        "The mounted credentials or CA file cannot be used.",
        "check the keys of the Secret or ConfigMap that the s3 block names",
    ),
    Reason(
        "ChecksumMismatch",
        "source",
        "What arrived is not what the source announced, twice.",
        "look for a proxy that alters downloads, or upload the file again",
        retriable=True,
    ),
    # -- disk
    Reason(
        "DiskFull",
        "disk",
        "There is no room for it.",
        "enlarge the claim (adapterDisk.size or storage.adapterDiskSize) or remove adapters",
        retriable=True,
    ),
    Reason(
        "DiskQuotaExceeded",
        "disk",
        "The storage's quota is used up.",
        "raise the quota of the volume or remove adapters",
        retriable=True,
    ),
    Reason("DiskIoError", "disk", "The storage reports an I/O error.", "check the storage system", retriable=True),
    Reason(
        "DiskStale",
        "disk",
        "The network file system lost a handle (ESTALE).",
        "it is tried again by itself with a fresh mount",
        retriable=True,
    ),
    Reason("DiskReadOnly", "disk", "The disk is mounted read-only.", "check the storage system and the claim"),
    Reason(
        "DiskPermissionDenied",
        "disk",
        "The disk may not be written by uid and gid 1000.",
        "use a storage class that honours fsGroup, or whose volumes are writable for gid 1000",
    ),
    Reason(
        "DiskOperationFailed",
        "disk",
        "The file system refused an operation.",
        "check the storage system",
        retriable=True,
    ),
    Reason(
        "DiskNotOurs",
        "disk",
        "The disk holds other data and no marker of ours.",
        "give the base artifact a claim of its own; nothing was changed",
    ),
    Reason(
        "DiskBusy",
        "disk",
        "Another Job held the lock for too long.",
        "it is tried again by itself",
        retriable=True,
    ),
    Reason(
        "SubtreeMoveFailed",
        "disk",
        "Some directories could not be moved out of the subtree; the others were.",
        "check the storage system; it is tried again by itself",
        retriable=True,
    ),
    # -- the adapter itself
    Reason(
        "AdapterNotDeclared",
        "adapter",
        "The service or its declaration of this adapter is gone meanwhile: nothing was promoted.",
        "nothing; a declared adapter is staged after the next sync",
    ),
    Reason(
        "AdapterConfigMissing",
        "adapter",
        "There is no adapter_config.json.",
        "point sourceUri at the folder that PEFT's save_pretrained wrote",
    ),
    Reason(
        "AdapterConfigUnreadable",
        "adapter",
        "adapter_config.json is no JSON object with values that make sense.",
        "save the adapter again and upload all of it",
    ),
    Reason(
        "AdapterLayoutNested",
        "adapter",
        "The adapter lies in a subfolder, the runtime wants it at the top.",
        "add the subfolder to sourceUri",
    ),
    Reason(
        "AdapterWeightsMissing",
        "adapter",
        "There is neither adapter_model.safetensors nor adapter_model.bin.",
        "upload the weights beside adapter_config.json",
    ),
    Reason(
        "AdapterSharded",
        "adapter",
        "The weights are split into several files, which the runtime does not load.",
        "save the adapter as one adapter_model.safetensors",
    ),
    Reason(
        "AdapterIsLfsPointer",
        "adapter",
        "A git-LFS pointer stands where the file should be.",
        "upload the real file (git lfs pull before copying)",
    ),
    Reason(
        "AdapterWeightsTruncated",
        "adapter",
        "The weights file is shorter than its header says.",
        "upload the file again",
    ),
    Reason(
        "AdapterWeightsUnreadable",
        "adapter",
        "The weights file is no valid safetensors or PyTorch file.",
        "save the adapter again with PEFT",
    ),
    Reason(
        "AdapterRankMissing",
        "adapter",
        "adapter_config.json has no rank r.",
        'add "r" with the rank of the training to adapter_config.json',
    ),
    Reason(
        "AdapterRankExceedsCeiling",
        "adapter",
        "The real rank is above the ceiling that the server starts with.",
        "set spec.rank of the artifact to the real rank (static mode) or raise adapterRuntime.maxRank (dynamic mode)",
    ),
    Reason(
        "AdapterTypeUnsupported",
        "adapter",
        "peft_type is not LORA.",
        "the runtime serves LoRA adapters only",
    ),
    Reason("AdapterUsesDora", "adapter", "It is a DoRA adapter.", "train without use_dora"),
    Reason(
        "AdapterSavesModules",
        "adapter",
        "It carries whole modules (modules_to_save).",
        "train without modules_to_save, or merge it into a base of its own",
    ),
    Reason(
        "AdapterTargetsNothing",
        "adapter",
        "target_modules is missing or empty.",
        "name the trained modules in target_modules",
    ),
    Reason(
        "AdapterFitsNoModule",
        "adapter",
        "None of its tensors belongs to a module of the base: it would have no effect.",
        "check that it was trained on this base, and the prefix of its tensor names",
    ),
    Reason(
        "AdapterTensorsIncomplete",
        "adapter",
        "A LoRA matrix lacks its other half, differs from it in rank, or is no matrix: engines fail on loading it.",
        "save the adapter again with PEFT",
    ),
    Reason(
        "AdapterPickleRefused",
        "adapter",
        "The weights are an executable pickle (.bin), which the administrator does not allow.",
        "save it with safe_serialization=True",
    ),
    # -- warnings, beside a success
    Reason("AdapterBaseMismatch", "warning", "The base named in the file is not the service's (a failure if strict)."),
    Reason("AdapterRankAboveDeclared", "warning", "The real rank is above the declared one, within the ceiling."),
    Reason("AdapterRankMismatch", "warning", "Tensors have a rank that the configuration does not name."),
    Reason("AdapterAlphaMissing", "warning", "The configuration has no lora_alpha; some engines refuse that."),
    Reason("AdapterUsesBias", "warning", "It carries biases; some engines refuse them."),
    Reason("AdapterIsPickle", "warning", "The weights are a .bin, which is an executable pickle."),
    Reason("AdapterExtraTensors", "warning", "It carries tensors that are no LoRA matrices; engines may refuse them."),
    Reason("AdapterFitsPartly", "warning", "Some of its tensors belong to no module of the base."),
    Reason(
        "SourceNotVerified",
        "warning",
        "The source gives no checksum that can be verified for some files: only their sizes were.",
    ),
    # -- commands
    Reason(
        "SpecificationInvalid",
        "command",
        "The command line is not one that the controller writes.",
        "use images and controller of one version",
    ),
    Reason(
        "Interrupted",
        "command",
        "The Job was told to stop.",
        "what arrived is kept and it is tried again by itself",
        retriable=True,
    ),
    Reason(
        "InternalError",
        "command",
        "A fault of this program.",
        "please report it with the Job's log",
        retriable=True,
    ),
)

REASONS: dict[str, Reason] = {reason.name: reason for reason in _REASONS}
ADVICE: dict[str, str] = {reason.name: reason.advice for reason in _REASONS}
RETRIABLE: frozenset[str] = frozenset(reason.name for reason in _REASONS if reason.retriable)

_TITLES: dict[Group, str] = {
    "success": "Success",
    "source": "The source",
    "disk": "The disk",
    "adapter": "The adapter",
    "warning": "Warnings",
    "command": "The command",
}


def render_markdown() -> str:
    """Return docs/reasons.md."""
    lines = [
        "# Reasons of the disk Jobs",
        "",
        "A Job ends with one of these in its termination message; a failure appears as `Reason: message` in",
        "`status.adapters[].lastError`, a warning in `status.adapters[].warnings[]`. The words are stable.",
        "*Passes by itself*: the same Job may succeed later; it is tried again with backoff. The others wait for a",
        "change (or for the annotation `aim.eai.amd.com/retry-staging`), and are retried rarely.",
        "",
        "This page is generated from `disk/reasons.py`.",
    ]
    for group, title in _TITLES.items():
        lines += ["", f"## {title}", "", "| reason | means | what to do | passes by itself |", "|---|---|---|---|"]
        for reason in _REASONS:
            if reason.group == group:
                passes = "yes" if reason.retriable else ""
                lines.append(f"| `{reason.name}` | {reason.meaning} | {reason.advice} | {passes} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    import sys

    sys.stdout.write(render_markdown())
