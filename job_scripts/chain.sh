#!/bin/bash
# A chain of dependent jobs, for sites where a job may not submit a job: each link goes on where the one before it
# stopped early; once the run is done, or has failed, the links that are left do nothing.
#   job_scripts/chain.sh 5 [sbatch's or qsub's options] SCRIPT [arguments]
#   job_scripts/chain.sh 5 --time=08:00:00 job_scripts/ddp.slurm configs/mnist.yaml --set train.epochs=50
#   CONFIG=configs/mnist.yaml SET="train.epochs=50" job_scripts/chain.sh 5 -l walltime=08:00:00 job_scripts/ddp.pbs
set -eu
# shellcheck source=job_scripts/leftovers.sh
. "$(dirname "$0")/leftovers.sh"
# shellcheck source=job_scripts/carry.sh
. "$(dirname "$0")/carry.sh"
usage() { sed -n '2,6s/^# \?//p' "$0" >&2; exit 2; }
[[ ${1:-} =~ ^[1-9][0-9]*$ ]] || usage
links=$1 options=()
shift
until [[ ${1:-} =~ \.(slurm|pbs)$ ]]; do
  [ $# -gt 0 ] || usage
  options+=("$1")
  shift
done
script=$1
shift
export LOCKSTEP_CHAIN LOCKSTEP_LINK=1
LOCKSTEP_CHAIN=$(date +%Y%m%d-%H%M%S)-$$
LOCKSTEP_HOME=$(realpath "${LOCKSTEP_HOME:-$(dirname "$0")/..}")
export LOCKSTEP_HOME
before='' jobs=()
for ((i = 1; i <= links; ++i)); do
  LOCKSTEP_LINK=$i
  case $script in
    *.slurm) before=$(hand_in sbatch --parsable --export=ALL "${options[@]}" ${before:+--dependency=afternotok:$before --kill-on-invalid-dep=yes} "$script" "$@") ;;
    *.pbs) before=$(qsub_with_settings "$script" "${options[@]}" ${before:+-W depend=afternotok:$before}) ;;
  esac
  echo "link $i of $links: job $before"
  jobs+=("$before")
  note_jobs "$PWD/.lockstep-chain-$LOCKSTEP_CHAIN" "${jobs[@]}"
done
