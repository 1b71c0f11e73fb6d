# shellcheck shell=bash
# Builds the binaries into the cache, each by its version. Sourced by control-plane.

build() {
  local etcd_version minor component=k8s.io/component-base/version
  etcd_version=$(pinned go.etcd.io/etcd/server/v3 "$here/etcd/go.mod")
  minor=${version#1.} minor=${minor%%.*}
  build_helper
  mkdir -p "$bin"
  lock "build-$version"
  local module=$here/kubernetes
  [[ v$version == "$(pinned k8s.io/kubernetes "$module/go.mod")" ]] || module=$bin/module
  [[ -f $module/go.sum ]] || write_module "$module"
  if ! is_version "$bin/etcd" "etcd Version: ${etcd_version#v}" --version; then
    build_one "$here/etcd" go.etcd.io/etcd/server/v3 etcd -s -w
  fi
  local flags=(-s -w -X "$component.gitVersion=v$version" -X "$component.gitMajor=1" -X "$component.gitMinor=$minor")
  if ! is_version "$bin/kube-apiserver" "Kubernetes v$version" --version; then
    build_one "$module" k8s.io/kubernetes/cmd/kube-apiserver kube-apiserver "${flags[@]}"
  fi
  if ! is_version "$bin/kubectl" "Client Version: v$version" version --client; then
    build_one "$module" k8s.io/kubernetes/cmd/kubectl kubectl "${flags[@]}"
  fi
  unlock
}

# build_one MODULE PACKAGE NAME LDFLAG...: into the cache, under its name only when it is whole.
build_one() {
  local module=$1 package=$2 target=$3 began
  began=$(now)
  shift 3
  need_go
  say "building $target for Kubernetes $version (the first time takes minutes)"
  (cd "$module" && GOWORK=off CGO_ENABLED=0 go build -trimpath -ldflags "$*" -o "$bin/.$target.new" "$package") ||
    die "building $target failed"
  mv -f "$bin/.$target.new" "$bin/$target"
  say "built $target in $(seconds_since "$began") s"
}

# The helper is named after its source, so that two checkouts never share a stale one.
build_helper() {
  local sum
  sum=$(cat "$here"/helper/go.mod "$here"/helper/*.go | sha256sum)
  helper=$cache/helper-${sum:0:12}
  [[ ! -x $helper ]] || return 0
  need_go
  mkdir -p "$cache"
  (cd "$here/helper" && GOWORK=off CGO_ENABLED=0 go build -trimpath -o "$helper.$$" .) || die "building the helper failed"
  mv -f "$helper.$$" "$helper"
}

# write_module DIR: a module for a Kubernetes version other than the pinned one. Kubernetes replaces its staging modules by
# directories of its own repository; outside of it they are the published modules of the same release.
write_module() {
  local module=$1 upstream staging module_name edits
  need_go
  rm -rf "$module"
  mkdir -p "$module"
  say "writing a module for Kubernetes $version"
  (
    cd "$module"
    export GOWORK=off
    upstream=$(go mod download -json "k8s.io/kubernetes@v$version" | sed -n 's/^\t"GoMod": "\(.*\)",$/\1/p') ||
      die "the Go module k8s.io/kubernetes v$version cannot be had; see: go list -m -versions k8s.io/kubernetes"
    edits=(-require "k8s.io/kubernetes@v$version"
      -tool k8s.io/kubernetes/cmd/kube-apiserver -tool k8s.io/kubernetes/cmd/kubectl)
    mapfile -t staging < <(sed -n 's,^[[:space:]]*\(k8s.io/[a-z0-9-]*\) => \./staging/.*,\1,p' "$upstream")
    for module_name in "${staging[@]}"; do
      edits+=(-replace "$module_name=$module_name@v0.${version#1.}")
    done
    sed -n '/^go /p; /^godebug /p' "$upstream" | cat <(echo "module kube-informer.dev/testing/control-plane/kubernetes") - >go.mod
    go mod edit "${edits[@]}"
    go mod tidy
  )
}

# is_version FILE TEXT ARG...: whether FILE, called with ARG..., says TEXT in its first line.
is_version() {
  local file=$1 text=$2 said
  shift 2
  [[ -x $file ]] && said=$("$file" "$@" 2>/dev/null) && [[ ${said%%$'\n'*} == "$text" ]]
}

# pinned MODULE GO.MOD: the version that a go.mod requires.
pinned() {
  awk -v module="$1" '{ for (i = 1; i < NF; i++) if ($i == module && $(i + 1) ~ /^v/) { print $(i + 1); exit } }' "$2"
}

need_go() {
  command -v go >/dev/null || die "Go is needed to build; install 1.26 or newer"
}
