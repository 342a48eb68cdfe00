# shellcheck shell=bash
# Settings that travel inside a job's script: qsub -v turns quotes into backslashes, a script's text arrives as it is.

# with_settings SCRIPT NAME...: SCRIPT's text, with these variables set before its first line that does something,
# in the place of what it carried already.
with_settings() {
  local script=$1 name begin='# lockstep: settings that came along' end='# lockstep: that was all of them'
  shift
  BEGIN=$begin END=$end EXPORTS=$(
    echo export LOCKSTEP_CARRIED=yes
    for name; do printf 'export %s=%q\n' "$name" "${!name}"; done) awk '
    $0 == ENVIRON["BEGIN"] { earlier = 1 }
    !earlier && !done && !/^[ \t]*(#|$)/ {
      print ENVIRON["BEGIN"] "\n" ENVIRON["EXPORTS"] "\n" ENVIRON["END"]
      done = 1
    }
    !earlier { print }
    $0 == ENVIRON["END"] { earlier = 0 }' "$script"
}

# hand_in COMMAND...: one that submits; a mute scheduler has 2 minutes, as for lockstep submit.
hand_in() {
  local status=0
  timeout --foreground -k 10 120 "$@" || status=$?
  [ "$status" -ne 124 ] || echo "lockstep: ${1##*/} has not answered within 2 minutes: nobody knows whether there is a job; look into the queue" >&2
  return "$status"
}

# Every setting of ours that is set.
our_settings() { compgen -e | grep -E '^(LOCKSTEP_|CONFIG$|SET$|RUN$)'; }

# qsub_with_settings SCRIPT [qsub's options]: submits it with all of them.
qsub_with_settings() {
  local script=$1 names name=(-N lockstep)
  shift
  ! grep -q '^#PBS -N' "$script" || name=()  # qsub does not see the file's name
  mapfile -t names < <(our_settings)
  with_settings "$script" "${names[@]}" | hand_in qsub "${name[@]}" "$@"
}
