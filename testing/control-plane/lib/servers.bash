# shellcheck shell=bash
# How etcd and kube-apiserver of an instance are started and restarted. Sourced by control-plane.

start_etcd() {
  local peer=http://127.0.0.1:$etcd_peer_port
  local flags=(
    --name=default --data-dir="$data"
    --listen-client-urls="$(etcd_url)" --advertise-client-urls="$(etcd_url)"
    --listen-peer-urls="$peer" --initial-advertise-peer-urls="$peer" --initial-cluster="default=$peer"
    --quota-backend-bytes=$((8 << 30))
    --unsafe-no-fsync # what is stored need not outlive the machine
    --watch-progress-notify-interval=5s --log-level=warn
  )
  spawn etcd "$bin/etcd" "${flags[@]}"
  wait_ready etcd "$(etcd_url)/health"
}

start_apiserver() {
  local flags=(
    --bind-address=127.0.0.1 --advertise-address=127.0.0.1 --secure-port="$apiserver_port"
    --endpoint-reconciler-type=none # a loopback address is not allowed as an endpoint
    --etcd-servers="$(etcd_url)"
    --tls-cert-file="$dir/apiserver.crt" --tls-private-key-file="$dir/apiserver.key"
    --client-ca-file="$dir/ca.crt" --token-auth-file="$dir/tokens.csv" --authorization-mode=RBAC
    --service-account-issuer=https://kubernetes.default.svc
    --service-account-key-file="$dir/service-account.key" --service-account-signing-key-file="$dir/service-account.key"
    --disable-admission-plugins=ServiceAccount # no controller manager makes the accounts that it asks for
    --service-cluster-ip-range=10.0.0.0/16
  )
  spawn apiserver "$bin/kube-apiserver" "${flags[@]}" "${apiserver_flags[@]}"
  wait_ready apiserver "$(url)/readyz" "$dir/ca.crt" "$dir/token"
  # The server makes its namespaces only after it calls itself ready.
  wait_ready apiserver "$(url)/api/v1/namespaces/default" "$dir/ca.crt" "$dir/token"
}

restart_apiserver() {
  local began
  began=$(now)
  pid_of etcd >/dev/null || die "etcd is not running; take the instance down and up again"
  lock "instance-$name"
  stop apiserver 2 # asked to end, it waits for open watches, which may take long
  start_apiserver
  unlock
  say "kube-apiserver is ready again after $(seconds_since "$began") s"
}

signal_apiserver() {
  local pid
  pid=$(pid_of apiserver) || die "kube-apiserver is not running; start it with: control-plane restart-apiserver --name $name"
  kill -"$1" "$pid"
}
