# shellcheck shell=bash
# Starts, finds, watches and stops the processes of an instance. Sourced by control-plane.
#
# A pid file holds pid, start time and executable: a pid that another process got since is never signalled.

# spawn PART COMMAND...: start a part of the instance.
spawn() {
  local part=$1 executable
  shift
  executable=$(readlink -f "$1")
  detach "$dir/$part.log" "$@"
  echo "$detached $(stat_field "$detached" 22) $executable" >"$dir/$part.pid"
  # Until exec the child is still bash.
  while [[ $(readlink "/proc/$detached/exe") != "$executable" ]]; do
    kill -0 "$detached" 2>/dev/null || die_of "$part"
    sleep 0.01
  done
}

# detach LOG COMMAND...: start in the background, in a session of its own; the pid is left in $detached.
detach() {
  local log=$1
  shift
  (
    # A server must not hold its caller's locks and pipes open.
    for fd in "/proc/$BASHPID/fd"/*; do
      fd=${fd##*/}
      ((fd <= 2 || fd == 255)) || eval "exec $fd>&-"
    done
    exec setsid "$@" </dev/null >>"$log" 2>&1
  ) &
  detached=$!
  disown "$detached" # its end is no news to whoever called us
}

# pid_of PART: its pid, if it runs.
pid_of() {
  local pid started executable
  [[ -f $dir/$1.pid ]] && read -r pid started executable <"$dir/$1.pid" || return 1
  [[ $(stat_field "$pid" 22) == "$started" ]] || return 1
  # Linux adds " (deleted)" if the file was built again since.
  [[ $(readlink "/proc/$pid/exe") == "$executable"?( \(deleted\)) ]] || return 1
  echo "$pid"
}

# state_of PART: for people.
state_of() {
  local pid
  if ! pid=$(pid_of "$1"); then
    echo dead
  elif [[ $(stat_field "$pid" 3) == T ]]; then
    echo "paused ($pid)"
  else
    echo "running ($pid)"
  fi
}

# stop PART SECONDS: politely, then not.
stop() {
  local part=$1 pid
  if pid=$(pid_of "$part"); then
    kill -TERM "$pid" 2>/dev/null || true
    kill -CONT "$pid" 2>/dev/null || true # a paused process hears nothing else
    wait_gone "$part" "$2" || kill -KILL "$pid" 2>/dev/null || true
  fi
  wait_gone "$part" 10 || die "$part does not end"
}

# wait_gone PART SECONDS
wait_gone() {
  local deadline=$(($(now) + $2 * 1000000))
  until is_gone "$1"; do
    (($(now) < deadline)) || return 1
    sleep 0.05
  done
}

# is_gone PART: whether it has closed all it had open. A process that was killed looks dead some time before the last of its
# threads is, and until then its port and its files are taken.
is_gone() {
  local pid started tasks
  [[ -f $dir/$1.pid ]] || return 0
  read -r pid started _ <"$dir/$1.pid" || return 0
  [[ $(stat_field "$pid" 22) == "$started" ]] || return 0
  [[ $(stat_field "$pid" 3) == Z ]] || return 1
  tasks=("/proc/$pid/task"/*)
  ((${#tasks[@]} == 1))
}

# SIGSTOP takes effect a little after it was sent.
wait_paused() {
  local tries
  for ((tries = 0; tries < 200; tries++)); do
    [[ $(stat_field "$(pid_of apiserver)" 3) != T ]] || return 0
    sleep 0.05
  done
  die "kube-apiserver does not stop"
}

# wait_ready PART URL [CA TOKEN]: until the URL answers 200.
wait_ready() {
  local part=$1 deadline=$((SECONDS + timeout))
  shift
  until "$helper" get "$@" 2>/dev/null; do
    pid_of "$part" >/dev/null || die_of "$part"
    ((SECONDS < deadline)) || die_of "$part" "is not ready after $timeout s (CONTROL_PLANE_TIMEOUT)"
    sleep 0.05
  done
}

# stat_field PID NUMBER: a field of /proc/PID/stat as proc(5) counts them, from 3 on; empty if there is no such process.
stat_field() {
  local stat fields
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 0
  read -ra fields <<<"${stat##*) }" # the name before it may hold anything
  echo "${fields[$2 - 3]}"
}
