#!/bin/bash
# What an attempt has on this node: all with LOCKSTEP_ATTEMPT=$2 in their environment, $3 by name where that is not empty.
#   attempt.sh list ATTEMPT NAME     prints their numbers
#   attempt.sh end ATTEMPT NAME      ends them
LC_ALL=C

processes() {
  local file
  grep -slzxF "LOCKSTEP_ATTEMPT=$1" /proc/[0-9]*/environ | while IFS=/ read -r _ _ file _; do
    [ "$file" = $$ ] || { [ -n "$2" ] && [ "$(cat "/proc/$file/comm" 2>/dev/null)" != "${2:0:15}" ]; } || echo "$file"
  done
}

case $1 in
  list) processes "$2" "$3" ;;
  end)
    for _ in 1 2 3 4 5; do  # one that is being born has no number yet
      found=$(processes "$2" "$3")
      [ -n "$found" ] || break
      echo "lockstep job: sending SIGKILL on $(uname -n) to what is left of attempt $2: ${found//$'\n'/ }"
      xargs kill -s KILL <<<"$found" 2>/dev/null
      sleep 0.1
    done ;;
esac
