# shellcheck shell=bash
# Locks between calls that run at the same time. Sourced by control-plane.

# lock NAME: a stack of locks; unlock lets go of the last.
lock() {
  local descriptor file=$cache/locks/$1
  mkdir -p "$cache/locks"
  while :; do
    exec {descriptor}>"$file"
    flock "$descriptor"
    # Whoever held it may have deleted the file: then ours is a lock that nobody else sees.
    [[ ! $file -ef /proc/$BASHPID/fd/$descriptor ]] || break
    exec {descriptor}>&-
  done
  locks+=("$descriptor")
}

unlock() {
  local descriptor=${locks[-1]}
  exec {descriptor}>&-
  unset 'locks[-1]'
}
locks=()
