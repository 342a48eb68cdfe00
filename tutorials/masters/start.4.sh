#@ title      Fix an environment with the doctor's help
#@ hint       Run it as the comment says, and read the lines that do not begin with `ok`: each names a check, what it found, and what to do.
#@ hint       Three lines are harmful. What would each rank use without them? lockstep chooses the number of threads itself.
#@ hint       Remove OMP_NUM_THREADS, ulimit and TORCH_DISTRIBUTED_DEBUG. NCCL_DEBUG=WARN is harmless.
#!/bin/bash
# start.4.sh PROGRAM WORD...: what a job does on each rank before its program begins. It came with a script from
# another cluster, and every line was of use there, once. Ask the doctor, in the environment that it makes:
#   mpirun -n 2 bash exercises/start.4.sh lockstep doctor
#@ todo
# TODO: fix what the doctor names
export OMP_NUM_THREADS=$(nproc --all)  # all cores for us
export NCCL_DEBUG=WARN                 # NCCL says its errors
export TORCH_DISTRIBUTED_DEBUG=DETAIL  # a run hung in March
ulimit -n 256                          # the file server was slow
#@ solution
export NCCL_DEBUG=WARN                 # NCCL says its errors
#@ wrong threads
export OMP_NUM_THREADS=$(nproc --all)
export NCCL_DEBUG=WARN
#@ right a_number
export OMP_NUM_THREADS=1
#@ wrong empty
export OMP_NUM_THREADS=
export NCCL_DEBUG=WARN
#@ wrong letters
export OMP_NUM_THREADS=auto
#@ wrong files
export NCCL_DEBUG=WARN
ulimit -n 512
#@ wrong debug
export NCCL_DEBUG=WARN
export TORCH_DISTRIBUTED_DEBUG=DETAIL
#@ wrong quote: bash cannot read
export NCCL_DEBUG="WARN
#@ end

# Then this shell becomes the program, whatever it is: its words stay as they are, and the launcher sees its end.
#@ todo
exec "$@"
#@ solution
exec "$@"
#@ right a_number
exec "$@"
#@ wrong above: instead of replacing itself
"$@"
#@ wrong first_word
exec "$1"
#@ wrong own: does not run its program
lockstep doctor
#@ wrong words
exec $@
#@ wrong end: exit status is lost
"$@"
echo "done"
#@ wrong bare: without the launcher's variables
exec env -i "$@"
#@ end
