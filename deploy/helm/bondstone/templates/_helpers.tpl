{{- define "bondstone.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "bondstone.labels" -}}
{{ include "bondstone.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- define "bondstone.resources" -}}
cpu: {{ .Values.cpu | quote }}
memory: {{ .Values.memory }}
{{- with .Values.hugepages }}
hugepages-2Mi: {{ . }}
{{- end }}
{{- range $resource, $count := .Values.devices }}
{{ $resource }}: {{ $count | quote }}
{{- end }}
{{- end }}
