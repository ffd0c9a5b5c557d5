{{/* Name of the chart, or its override. */}}
{{- define "aim-adapters.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* Name of objects: 50 characters leave room for the longest suffix (-webhook-root). */}}
{{- define "aim-adapters.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "aim-adapters.selectorLabels" -}}
app.kubernetes.io/name: {{ include "aim-adapters.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: server
{{- end -}}

{{- define "aim-adapters.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "aim-adapters.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: aim-adapters
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "aim-adapters.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "aim-adapters.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "aim-adapters.image" -}}
{{- $repository := .Values.image.repository -}}
{{- if .Values.image.registry -}}{{- $repository = printf "%s/%s" .Values.image.registry .Values.image.repository -}}{{- end -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" $repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "aim-adapters.serviceName" -}}
{{- printf "%s-webhook" (include "aim-adapters.fullname" .) -}}
{{- end -}}

{{/* Another Secret for cert-manager: replicas of the old and the new mode run side by side during a change. */}}
{{- define "aim-adapters.certificateSecret" -}}
{{- $suffix := ternary "issued" "tls" (eq .Values.certificates.mode "cert-manager") -}}
{{- default (printf "%s-webhook-%s" (include "aim-adapters.fullname" .) $suffix) .Values.certificates.secretName -}}
{{- end -}}

{{/* Names of the certificate in addition to those of the webhook Service. */}}
{{- define "aim-adapters.extraNames" -}}
{{- $names := .Values.certificates.extraNames -}}
{{- if and .Values.metrics.protected .Values.metrics.service -}}
{{- $names = append $names (printf "%s-metrics.%s.svc" (include "aim-adapters.fullname" .) .Release.Namespace) -}}
{{- end -}}
{{- toYaml $names -}}
{{- end -}}

{{/* "true" when the server creates its certificate and writes the CA bundles. */}}
{{- define "aim-adapters.selfManaged" -}}
{{- if and (or .Values.webhooks.enabled .Values.metrics.protected) (eq .Values.certificates.mode "self-managed") -}}true{{- end -}}
{{- end -}}

{{/* "true" when a Secret with a certificate is mounted. */}}
{{- define "aim-adapters.mounted" -}}
{{- if and (or .Values.webhooks.enabled .Values.metrics.protected) (ne .Values.certificates.mode "self-managed") -}}true{{- end -}}
{{- end -}}

{{/* Settings of the server: those of the values, overridden by those that the chart derives. */}}
{{- define "aim-adapters.settings" -}}
{{- $name := include "aim-adapters.fullname" . -}}
{{- $derived := dict
  "admission" .Values.webhooks.enabled
  "reconciler" .Values.reconciler.enabled
  "namespaces" .Values.namespaces
  "nodes" .Values.reconciler.nodes
  "namespace" .Release.Namespace
  "leaseName" $name
  "image" (include "aim-adapters.image" .)
  "imagePullPolicy" .Values.image.pullPolicy
  "admissionPort" .Values.ports.admission
  "healthPort" .Values.ports.health
  "certificates" (ternary "self-managed" "mounted" (eq .Values.certificates.mode "self-managed"))
  "certificateDir" "/etc/aim-adapters/tls"
  "certificateSecret" (include "aim-adapters.certificateSecret" .)
  "certificateNames" (include "aim-adapters.extraNames" . | fromYamlArray)
  "serviceName" (include "aim-adapters.serviceName" .)
  "clusterKindsReviewed" .Values.webhooks.clusterKinds
  "validatingWebhookConfigurations" (ternary (list $name) list .Values.webhooks.enabled)
  "mutatingWebhookConfigurations" (ternary (list $name) list .Values.webhooks.enabled)
  "metricsAuth" .Values.metrics.protected
  "metricsPort" .Values.ports.metrics
  "console" .Values.console.enabled
  "consoleAccess" .Values.console.access
-}}
{{- if .Values.webhooks.clientCA -}}
{{- $_ := set $derived "clientCaFile" "/etc/aim-adapters/config/client-ca.crt" -}}
{{- end -}}
{{- merge $derived .Values.settings | toYaml -}}
{{- end -}}

{{/* "true" when the cluster had the CRDs before this release. */}}
{{- define "aim-adapters.kindsAreKnown" -}}
{{- if .Capabilities.APIVersions.Has "aim.eai.amd.com/v1alpha1/AIMClusterRuntimeConfig" -}}true{{- end -}}
{{- end -}}

{{/* Values that contradict each other. */}}
{{- define "aim-adapters.check" -}}
{{- if not (or .Values.webhooks.enabled .Values.reconciler.enabled) -}}
{{- fail "webhooks.enabled and reconciler.enabled are both false: nothing would run" -}}
{{- end -}}
{{- if and .Values.namespaces (has .Release.Namespace .Values.namespaces) -}}
{{- fail (printf "namespaces: the namespace of the release, %q, cannot be served: the webhooks would block objects that the server needs to start" .Release.Namespace) -}}
{{- end -}}
{{- if and .Values.namespaces .Values.webhooks.excludedNamespaces -}}
{{- fail "webhooks.excludedNamespaces: cannot be combined with `namespaces`; leave one of the two empty" -}}
{{- end -}}
{{- if and (or .Values.webhooks.enabled .Values.metrics.protected) (eq .Values.certificates.mode "provided") (not .Values.certificates.caBundle) -}}
{{- fail "certificates.caBundle: required with certificates.mode provided (--set-file certificates.caBundle=ca.crt)" -}}
{{- end -}}
{{- if eq .Values.certificates.mode "cert-manager" -}}
{{- $given := .Values.certificates.certManager -}}
{{- range list (list "renewBefore" "duration") (list "authorityRenewBefore" "authorityDuration") -}}
{{- if ge (include "aim-adapters.minutes" (get $given (first .)) | int) (include "aim-adapters.minutes" (get $given (last .)) | int) -}}
{{- fail (printf "certificates.certManager.%s: %s is not shorter than %s (%s)" (first .) (get $given (first .)) (last .) (get $given (last .))) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .Values.metrics.podMonitor.enabled .Values.metrics.protected -}}
{{- fail "metrics.podMonitor.enabled: a PodMonitor cannot send the token that metrics.protected requires; use metrics.serviceMonitor" -}}
{{- end -}}
{{- if and .Values.metrics.serviceMonitor.enabled (not .Values.metrics.service) -}}
{{- fail "metrics.serviceMonitor.enabled: requires metrics.service" -}}
{{- end -}}
{{- end -}}

{{/* Minutes of a duration like 2160h or 1h30m. */}}
{{- define "aim-adapters.minutes" -}}
{{- $hours := regexFind "[0-9]+h" . | trimSuffix "h" | default "0" | int -}}
{{- $minutes := regexFind "[0-9]+m" . | trimSuffix "m" | default "0" | int -}}
{{- add (mul $hours 60) $minutes -}}
{{- end -}}
