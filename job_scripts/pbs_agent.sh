#!/bin/bash
# On PBS the remote agent of an MPI without tm support (MPICH, Open MPI so built): called as ssh would be,
# [options] HOST WORD...
# pbs_tmrsh starts its argument without a shell, so the words go to one, joined as ssh joins them.
while [ $# -gt 0 ] && [ "${1#-}" != "$1" ]; do shift; done
host=$1
shift
tmrsh=$(command -v pbs_tmrsh || echo "${PBS_EXEC:-/opt/pbs}/bin/pbs_tmrsh")
exec "$tmrsh" "$host" /bin/bash -c "$*"
