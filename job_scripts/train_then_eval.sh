#!/bin/bash
# Two jobs, the second after the first has succeeded: train, then measure the newest checkpoint.
#   job_scripts/train_then_eval.sh slurm [CONFIG] [--set key=value]...
#   CONFIG=configs/pima.yaml job_scripts/train_then_eval.sh pbs
set -eu
here=$(dirname "$0")
scheduler=${1:-}
[ $# -gt 0 ] && shift
export LOCKSTEP_RUN_FILE
LOCKSTEP_RUN_FILE=$PWD/.lockstep-then-$(date +%Y%m%d-%H%M%S)-$$
case $scheduler in
  slurm)
    train=$(sbatch --parsable --export=ALL "$here/ddp.slurm" "$@")
    then=$(sbatch --parsable --export=ALL --dependency=afterok:"$train" --kill-on-invalid-dep=yes "$here/eval.slurm") ;;
  pbs)
    names=$(compgen -e | grep -E '^(LOCKSTEP_|CONFIG$|SET$)' | paste -sd,)  # qsub takes no name that is not set
    train=$(qsub -v "$names" "$here/ddp.pbs")
    then=$(qsub -W depend=afterok:"$train" -v "$names" "$here/eval.pbs") ;;
  *) sed -n '2,4s/^# \?//p' "$0" >&2; exit 2 ;;
esac
echo "train: job $train, then eval: job $then"
