"""The reasons that lint itself speaks, about files and shapes; those of rules are in `rules`. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a reason means, and what to do about it."""

    means: str
    fix: str


REASONS: dict[str, Meaning] = {
    "YamlInvalid": Meaning(
        "The text is no YAML (or JSON), so nothing in this document was checked.",
        "Correct the line; a template must be rendered first (helm template, kustomize build).",
    ),
    "YamlTooLarge": Meaning(
        "A document is larger, or nested deeper, than any cluster would store.",
        "Split it; look for aliases that repeat.",
    ),
    "TextNotUtf8": Meaning("The file is not UTF-8 text.", "Save it as UTF-8."),
    "KeyDuplicate": Meaning(
        "A mapping gives the same key twice; which one counts depends on who reads it.", "Remove one of the two."
    ),
    "NotAnObject": Meaning(
        "The document is no Kubernetes object: it has no apiVersion and kind.", "Add both, or leave the file out."
    ),
    "KindUnknown": Meaning("aim.eai.amd.com has no such kind.", "Correct the kind."),
    "VersionUnknown": Meaning("This version of the kind is not served.", "Write a served version."),
    "GroupUnknown": Meaning(
        "A kind of ours under another API group: no cluster with aim-adapters knows it, and it was not checked.",
        "Write apiVersion aim.eai.amd.com/…",
    ),
    "VersionDeprecated": Meaning(
        "AIMService v1alpha1 is served, but deprecated.", "Write aim.eai.amd.com/v1alpha2; the fields are the same."
    ),
    "ObjectDuplicate": Meaning(
        "The same object (kind, namespace, name) is given twice; the last one applied would win.",
        "Remove or rename one of the two.",
    ),
    "NameInvalid": Meaning("The API server takes no such name, or no such label.", "Write it as the message says."),
    "NamespaceOnClusterKind": Meaning("The kind belongs to the whole cluster.", "Remove metadata.namespace."),
    "FieldUnknown": Meaning(
        "The kind has no such field: kubectl refuses it, other clients lose it in silence.", "Correct or remove it."
    ),
    "FieldRequired": Meaning("A field that the schema demands is missing.", "Set it."),
    "TypeWrong": Meaning("A value has another type than the schema demands.", "Write the type that the message names."),
    "ValueNotSupported": Meaning("The value is none of the supported words.", "Choose one that the message lists."),
    "PatternMismatch": Meaning("The text has not the form that the schema demands.", "Write it as the message shows."),
    "NumberOutOfBounds": Meaning("The number is too small or too large.", "Keep to the bound in the message."),
    "TextTooShort": Meaning("The text is too short.", "Keep to the bound in the message."),
    "TextTooLong": Meaning("The text is too long.", "Keep to the bound in the message."),
    "ListTooLong": Meaning("The list has too many entries.", "Keep to the bound in the message."),
    "ListTooShort": Meaning("The list has too few entries.", "Keep to the bound in the message."),
    "ListEntryDuplicate": Meaning("Two entries of a list have the same key.", "Remove or rename one of the two."),
    "RuleFailed": Meaning("A rule of this program failed; the others were asked.", "Please report it."),
}
