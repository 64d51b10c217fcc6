{{- define "waybill.env" -}}
- name: WAYBILL_LISTEN
  value: "0.0.0.0:{{ .Values.service.port }}"
{{- range $variable, $key := dict "WAYBILL_DATABASE_URL" "database-url" "WAYBILL_API_KEY" "api-key" "WAYBILL_ENCRYPTION_KEY" "encryption-key" "WAYBILL_MIGRATE_DATABASE_URL" "migrate-database-url" }}
- name: {{ $variable }}
  valueFrom:
    secretKeyRef:
      name: {{ $.Values.secret }}
      key: {{ $key }}
      optional: {{ eq $key "migrate-database-url" }}
{{- end }}
{{- range $name, $value := .Values.env }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}
