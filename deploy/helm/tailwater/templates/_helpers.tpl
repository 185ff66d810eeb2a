{{- define "tailwater.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "tailwater.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "tailwater.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "tailwater.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* The names of the Service, as far as resolvers complete them, and those of the values. */}}
{{- define "tailwater.httpHosts" -}}
{{- $short := include "tailwater.fullname" . -}}
{{- $space := printf "%s.%s" $short .Release.Namespace -}}
{{- $svc := printf "%s.svc" $space -}}
{{- $names := list $short $space $svc (printf "%s.cluster.local" $svc) -}}
{{- concat $names .Values.collector.httpHosts | uniq | join "," -}}
{{- end -}}

{{/* Where agents connect: the name that the collector's certificate has to bear. */}}
{{- define "tailwater.collectorHost" -}}
{{- printf "%s.%s.svc" (include "tailwater.fullname" .) .Release.Namespace -}}
{{- end -}}

{{- define "tailwater.collectorUrl" -}}
{{- printf "https://%s:4781" (include "tailwater.collectorHost" .) -}}
{{- end -}}

{{/* Whether the collector takes certificates of somebody else's authority: always without enrolment, and beside it while agents go over. Values of
     a release from before there was enrolment have none of it (`helm upgrade --reuse-values`): hence the parentheses, everywhere. */}}
{{- define "tailwater.sharedTls" -}}
{{- if or .Values.tls.collectorSecret (not (.Values.enrolment).enabled) -}}true{{- end -}}
{{- end -}}
