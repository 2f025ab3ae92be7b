#!/usr/bin/env bash
# Pre-trains or fine-tunes on the GPUs of one or several nodes of a Slurm cluster; submit it from the root of the repository.
#
#   sbatch --nodes=4 --gpus-per-node=8 --cpus-per-task=32 --time=24:00:00 launch/slurm.sh \
#       --config=configs/hlm_base.py --workdir=/shared/runs/hlm --config.model.dtype=bfloat16
#
#   --config=FILE[:VARIANT]  what to train
#   --config.KEY=VALUE       any key of charlm/config/__init__.py, handed on as it is
#   --workdir=DIR            folder of the run, which all nodes share, or gs://BUCKET/PATH or s3://BUCKET/PATH
#   --python=PROGRAM         interpreter that has charlm installed, on every node (default python)
#   --dry-run                print the commands and do nothing; works without Slurm
#   -h, --help               print this
#
# Options of sbatch (partition, account, --output, ...) stand before the name of the script, and win over those it sets
# itself. One process a node trains on all GPUs of the node. Output goes to slurm-JOB.out, each line after the number of
# its process; process 0 reports the training, the others only what is wrong.
#
# Five minutes before the time limit Slurm sends SIGTERM to the processes, and they save and end; the same happens when
# the cluster preempts the job with a grace period. The job then puts itself into the queue again, and goes on from there
# when it starts. So it does after a preemption without one or the loss of a node, from the last checkpoint. A process
# that fails ends all others and the job: the same sbatch command goes on. scancel ends it for good.

#SBATCH --job-name=charlm
#SBATCH --ntasks-per-node=1
#SBATCH --signal=TERM@300
#SBATCH --requeue
#SBATCH --open-mode=append

set -euo pipefail

readonly STOPPED=143  # exit status of a training that a signal stopped: 128 + SIGTERM

usage() { sed -n '2,/^$/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }

die() {
  printf 'error: %s\n' "$1" >&2
  exit 2
}

# Prints a command so that it can be pasted into a shell.
show() {
  local word line=""
  for word in "$@"; do
    [[ $word =~ ^[A-Za-z0-9_./:=,@%+~-]+$ ]] || word="'${word//\'/\'\\\'\'}'"
    line+="$word "
  done
  printf '%s\n' "${line% }"
}

config="" workdir="" python=python dry_run=false overrides=()
for argument in "$@"; do
  case $argument in
    --config=?*) config=${argument#*=} ;;
    --config.?*=*) overrides+=("$argument") ;;
    --workdir=?*) workdir=${argument#*=} ;;
    --python=?*) python=${argument#*=} ;;
    --dry-run) dry_run=true ;;
    -h | --help) usage && exit 0 ;;
    *) die "unexpected argument '$argument' (options are written --name=value, those of sbatch before the script); --help lists them" ;;
  esac
done

# In a job this is a copy elsewhere, and the current folder that of sbatch.
[[ -n ${SLURM_JOB_ID:-} ]] || cd "$(dirname "${BASH_SOURCE[0]}")/.."
[[ -n $config ]] || die "--config is missing; for example --config=configs/hlm_base.py"
[[ -f ${config%%:*} ]] || die "--config: no file ${config%%:*} in $PWD; submit from the root of the repository"
[[ -n $workdir ]] || die "--workdir is missing: a folder that all nodes share"
case $workdir in
  gs://?*/?* | s3://?*/?*) ;;
  [A-Za-z]*:/* | gs:* | s3:*) die "--workdir=$workdir is no address that charlm writes: expected a folder, gs://BUCKET/PATH or s3://BUCKET/PATH" ;;
esac
$dry_run || [[ -n ${SLURM_JOB_ID:-} ]] || die "this is a job: sbatch --nodes=N --gpus-per-node=N launch/slurm.sh ... (--help)"

command=(srun --ntasks-per-node=1 --kill-on-bad-exit=1 --label "$python" -m charlm.main --multihost)
command+=("--config=$config" "--workdir=$workdir" ${overrides[@]+"${overrides[@]}"} "--status_if_stopped=$STOPPED")
requeue=(scontrol requeue "${SLURM_JOB_ID:-JOB}")
if $dry_run; then
  show "${command[@]}"
  echo "# and when that was stopped before the last step:"
  show "${requeue[@]}"
  exit 0
fi

# Under Slurm JAX gives a process one GPU unless it is told which to take. Slurm numbers those of a job from 0.
if [[ -z ${JAX_LOCAL_DEVICE_IDS:-} ]]; then
  gpus=${SLURM_GPUS_ON_NODE:-}
  if [[ -z $gpus && -n ${CUDA_VISIBLE_DEVICES:-} ]]; then gpus=$(tr ',' '\n' <<<"$CUDA_VISIBLE_DEVICES" | wc -l); fi
  if ((${gpus:-0} > 0)); then JAX_LOCAL_DEVICE_IDS=$(seq -s, 0 $((gpus - 1))) && export JAX_LOCAL_DEVICE_IDS; fi
fi
# srun does not take this over from sbatch by itself.
[[ -z ${SLURM_CPUS_PER_TASK:-} ]] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK

# A signal for this script must not end it before the processes have saved.
trap : TERM
code=0
"${command[@]}" || code=$?
((code == STOPPED)) || exit "$code"
# scancel has taken the state from RUNNING, and so has a preemption in which Slurm itself puts the job into the queue.
state=$(squeue --noheader --jobs="$SLURM_JOB_ID" --format=%T) || true
[[ $state == RUNNING ]] || exit 0
echo "stopped before the last step: into the queue again"
"${requeue[@]}"
