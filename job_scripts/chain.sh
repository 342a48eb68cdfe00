#!/bin/bash
# A chain of dependent jobs, for sites where a job may not submit a job: each link goes on where the one before it
# stopped early; once the run is done, or has failed, the links that are left do nothing.
#   job_scripts/chain.sh 5 job_scripts/ddp.slurm configs/mnist.yaml --set train.epochs=50
#   CONFIG=configs/mnist.yaml SET="train.epochs=50" job_scripts/chain.sh 5 job_scripts/ddp.pbs
set -eu
if [ $# -lt 2 ] || ! [ "$1" -gt 0 ]; then
  sed -n '2,5s/^# \?//p' "$0" >&2
  exit 2
fi
links=$1 script=$2
shift 2
export LOCKSTEP_CHAIN
LOCKSTEP_CHAIN=$(date +%Y%m%d-%H%M%S)-$$
names=$(compgen -e | grep -E '^(LOCKSTEP_|CONFIG$|SET$)' | paste -sd,)  # qsub takes no name that is not set
before=
for ((i = 1; i <= links; ++i)); do
  case $script in
    *.slurm) before=$(sbatch --parsable --export=ALL ${before:+--dependency=afternotok:$before --kill-on-invalid-dep=yes} "$script" "$@") ;;
    *.pbs) before=$(qsub ${before:+-W depend=afternotok:$before} -v "$names" "$script") ;;
    *) echo "$script: neither a .slurm nor a .pbs script" >&2; exit 2 ;;
  esac
  echo "link $i of $links: job $before"
done
