{{- /* The labels of every object of the chart, beside its own. Pods have none of them: a new chart alone makes no new Pods. */}}
{{- define "kproxy.labels" -}}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- /* An object with these labels, as YAML: list of root and object. */}}
{{- define "kproxy.object" }}
{{- $root := index . 0 }}
{{- $object := index . 1 }}
{{- $own := $object.metadata.labels | default dict }}
{{- $_ := set $object.metadata "labels" (merge $own (include "kproxy.labels" $root | fromYaml)) }}
{{- toYaml $object }}
{{- end }}

{{- define "kproxy.image" -}}
{{- $repository := required "image.repository: name the image that you have pushed, such as registry.example/kproxy" .Values.image.repository }}
{{- with .Values.image.digest }}{{ $repository }}@{{ . }}{{ else }}{{ $repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- /* The ConfigMap that config.conf is in. */}}
{{- define "kproxy.configMap" -}}
{{ with .Values.mode }}kproxy-{{ . }}{{ else }}kube-proxy{{ end }}
{{- end }}

{{- /* The KubeProxyConfiguration of a mode, as YAML. */}}
{{- define "kproxy.config" }}
{{- $values := .Values }}
{{- $config := dict "apiVersion" "kubeproxy.config.k8s.io/v1alpha1" "kind" "KubeProxyConfiguration" "mode" $values.mode }}
{{- $_ := set $config "clientConnection" (dict "kubeconfig" "/var/lib/kube-proxy/kubeconfig.conf") }}
{{- $_ := set $config "clusterCIDR" $values.clusterCIDR }}
{{- with $values.metricsBindAddress }}{{ $_ := set $config "metricsBindAddress" . }}{{ end }}
{{- with $values.detectLocal.mode }}{{ $_ := set $config "detectLocalMode" . }}{{ end }}
{{- range $field := list "bridgeInterface" "interfaceNamePrefix" }}
{{- with index $values.detectLocal $field }}
{{- $_ := set $config "detectLocal" (merge (dict $field .) ($config.detectLocal | default dict)) }}
{{- end }}
{{- end }}
{{- with $values.metricsTLS }}
{{- if .secretName }}
{{- $folder := "/etc/kproxy/metrics-tls" }}
{{- $serving := dict "tlsCertFile" (print $folder "/tls.crt") "tlsPrivateKeyFile" (print $folder "/tls.key") }}
{{- if .clientCertificates }}{{ $_ := set $serving "clientCAFile" (print $folder "/ca.crt") }}{{ end }}
{{- if .delegatedAuthentication }}{{ $_ := set $serving "delegatedAuthentication" true }}{{ end }}
{{- $_ := set $config "kproxy" (dict "serving" $serving) }}
{{- end }}
{{- end }}
{{- mergeOverwrite $config $values.config | toYaml }}
{{- end }}

{{- /* How the Pods reach an API server by its address, as kubeadm writes it. */}}
{{- define "kproxy.kubeconfig" -}}
{{- $account := "/var/run/secrets/kubernetes.io/serviceaccount" -}}
apiVersion: v1
kind: Config
clusters:
  - name: default
    cluster: { server: {{ . | quote }}, certificate-authority: {{ $account }}/ca.crt }
contexts:
  - name: default
    context: { cluster: default, user: default }
current-context: default
users:
  - name: default
    user: { tokenFile: {{ $account }}/token }
{{ end }}
