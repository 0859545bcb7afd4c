{{/*
The objects are in files/, which `make generate` copies from deploy/, monitoring/ and grafana/, so that
the chart and the overlays of kustomize cannot differ. The templates here choose among them, put in the
namespaces, and set what a value sets.
*/}}

{{/* "true" for a Prometheus of the prometheus-operator. */}}
{{- define "traffic-operator.operated" -}}
{{- if hasPrefix "kube-prometheus" .Values.prometheus.setup }}true{{ end }}
{{- end }}

{{/* The namespace of Prometheus; empty if it is not known. */}}
{{- define "traffic-operator.prometheusNamespace" -}}
{{- $default := dict "standalone" "traffic-operator-monitoring" "external" "" -}}
{{- .Values.prometheus.namespace | default (get $default .Values.prometheus.setup | default (ternary "" "monitoring" (eq .Values.prometheus.setup "external"))) }}
{{- end }}

{{/* The address of Prometheus; empty where the operator's default is right. */}}
{{- define "traffic-operator.prometheusUrl" -}}
{{- $namespace := include "traffic-operator.prometheusNamespace" . -}}
{{- $setup := .Values.prometheus.setup -}}
{{- if .Values.prometheus.url -}}
{{ .Values.prometheus.url }}
{{- else if eq $setup "standalone" -}}
http://prometheus.{{ $namespace }}.svc:9090
{{- else if eq $setup "kube-prometheus-stack" -}}
http://prometheus-operated.{{ $namespace }}.svc:9090
{{- else if and (eq $setup "kube-prometheus") (ne $namespace "monitoring") -}}
http://prometheus-k8s.{{ $namespace }}.svc:9090
{{- end }}
{{- end }}

{{/* The address of the runbooks, without slash at its end; empty if it is not known. */}}
{{- define "traffic-operator.runbookUrl" -}}
{{ .Values.runbookUrl | trimSuffix "/" }}
{{- end }}

{{- define "traffic-operator.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{/*
The text of a file with the namespaces of this release: `include … (list $ "base/service.yaml")`.
Every default name is replaced by a mark first, so that no name that is put in is replaced again.
*/}}
{{- define "traffic-operator.file" -}}
{{- $root := index . 0 -}}
{{- $text := $root.Files.Get (printf "files/%s" (index . 1)) | required (printf "files/%s is missing" (index . 1)) -}}
{{- $monitoring := include "traffic-operator.prometheusNamespace" $root -}}
{{- $text = $text | replace "traffic-operator-system" "<operator>" | replace "traffic-operator-monitoring" "<prometheus>" -}}
{{- $text = regexReplaceAll "(?m)^( *(- )?(namespace|kubernetes.io/metadata.name): )monitoring$" $text "${1}<prometheus>" -}}
{{- $text | replace "<operator>" $root.Release.Namespace | replace "<prometheus>" $monitoring -}}
{{- end }}

{{/* "true" if the object belongs to what runs: without NetworkProbers there is no webhook. */}}
{{- define "traffic-operator.runs" -}}
{{- $root := index . 0 -}}
{{- $object := index . 1 -}}
{{- $webhook := list "traffic-operator-webhook" "traffic-operator-pinglists" -}}
{{- $ofWebhook := or (has $object.metadata.name $webhook) (eq $object.kind "MutatingWebhookConfiguration") -}}
{{- if or (has "NetworkProber" $root.Values.kinds) (not $ofWebhook) }}true{{ end }}
{{- end }}

{{/*
The objects of a file, each with the changes that a template of the name `traffic-operator.set<Kind>`
makes to it (without kind it is left out): `include … (dict "root" $ "file" "base/service.yaml" "set" "traffic-operator.setDeployment")`.
*/}}
{{- define "traffic-operator.objects" -}}
{{- $root := .root -}}
{{- $set := .set -}}
{{- range $document := splitList "\n---\n" (include "traffic-operator.file" (list $root .file)) -}}
{{- $object := fromYaml $document -}}
{{- with $object.Error }}{{ fail . }}{{ end -}}
{{- if $object.kind -}}
{{- if include "traffic-operator.runs" (list $root $object) -}}
{{- if $set }}{{ $_ := include $set (list $root $object) }}{{ end -}}
{{- if $object.kind }}
---
{{ toYaml $object }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
