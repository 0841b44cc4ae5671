#!/bin/sh
# kube_apiserver.sh serve FLAGS...: the program KUBE_APISERVER in the place of `kapi serve`, by kapi's flags: it validates, admits
# and authorizes, gives Services their addresses, and reads its tokens at its start only. The first token in the
# file is an administrator's, those that begin with "nobody" are of a user without rights, the others kube-proxy's.
set -eu
shift
while [ $# -gt 0 ]; do
  case $1 in
    -feature-gates) gates=$2 ;;
    -etcd) etcd=$2 ;;
    -port) port=$2 ;;
    -data-dir) dir=$2 ;;
    -token-file) tokens=$2 ;;
    -client-ca) client_ca=$2 ;;
    *) echo "$0: $1 is for kapi alone" >&2; exit 2 ;;
  esac
  shift 2
done
cd "$dir"
if [ ! -f ca.crt ]; then
  ec='-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes'
  names=DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc
  openssl req -x509 $ec -days 2 -keyout ca.key -out ca.crt -subj /CN=server-ca -addext basicConstraints=critical,CA:TRUE
  openssl req $ec -keyout server.key -out server.csr -subj /CN=kube-apiserver
  echo "subjectAltName=IP:127.0.0.1,$names" >server.ext
  openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -out server.crt -extfile server.ext
  openssl genrsa -out accounts.key 2048
  openssl rsa -in accounts.key -pubout -out accounts.pub
  cat >kubeconfig <<YAML
apiVersion: v1
kind: Config
clusters: [{ name: c, cluster: { server: "https://127.0.0.1:$port", certificate-authority: $dir/ca.crt } }]
users: [{ name: u, user: { token: $(head -n 1 "$tokens") } }]
contexts: [{ name: c, context: { cluster: c, user: u } }]
current-context: c
YAML
fi >&2
awk 'NR == 1 { print $0 ",admin,1,system:masters"; next }
  { print $0 (/^nobody/ ? ",nobody," : ",system:kube-proxy,") NR }' "$tokens" >tokens.csv
{
  bearer="Authorization: Bearer $(head -n 1 "$tokens")"
  until curl -sf --max-time 5 --cacert ca.crt -H "$bearer" "https://127.0.0.1:$port/readyz" >&2; do sleep 0.2; done
  echo ready
} &
exec "$KUBE_APISERVER" --etcd-servers="$etcd" --secure-port="$port" --bind-address=127.0.0.1 --advertise-address=127.0.0.1 \
  --feature-gates="$gates" --tls-cert-file=server.crt --tls-private-key-file=server.key --client-ca-file="$client_ca" \
  --token-auth-file=tokens.csv --authorization-mode=Node,RBAC --anonymous-auth=false --service-cluster-ip-range=10.96.0.0/12 \
  --service-account-issuer=https://kubernetes.default.svc --service-account-key-file=accounts.pub \
  --service-account-signing-key-file=accounts.key --endpoint-reconciler-type=none --cert-dir=certs >&2
