#!/bin/bash
# start.4.sh PROGRAM WORD...: what a job does on each rank before its program begins. It came with a script from
# another cluster, and every line was of use there, once. Ask the doctor, in the environment that it makes:
#   mpirun -n 2 bash exercises/start.4.sh lockstep doctor
# TODO: fix what the doctor names
export OMP_NUM_THREADS=$(nproc --all)  # all cores for us
export NCCL_DEBUG=WARN                 # NCCL says its errors
export TORCH_DISTRIBUTED_DEBUG=DETAIL  # a run hung in March
ulimit -n 256                          # the file server was slow

# Then this shell becomes the program, whatever it is: its words stay as they are, and the launcher sees its end.
exec "$@"
