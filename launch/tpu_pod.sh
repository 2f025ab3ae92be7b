#!/usr/bin/env bash
# Pre-trains on a Cloud TPU VM that is requested as a queued resource.
#
#   launch/tpu_pod.sh all --name=hlm --zone=us-east5-b --accelerator-type=v6e-8 --spot --keep \
#       --gcs-bucket=my-bucket --config=configs/hlm_base.py --workdir=runs/hlm --config.data.train='tfds:wikipedia:train'
#   launch/tpu_pod.sh logs   --name=hlm --zone=us-east5-b --gcs-bucket=my-bucket --workdir=runs/hlm
#   launch/tpu_pod.sh delete --name=hlm --zone=us-east5-b
#
# Commands:
#   create   request the TPU and wait until it is ACTIVE
#   setup    copy the code (the last commit of this repository) to it, install it, mount the shared folder
#   run      start the training in the background, or go on where it stopped
#   status   state of the TPU and of the training
#   logs     follow the log of the training
#   delete   give the TPU back
#   all      create, setup, run
#
# Options:
#   --name=NAME               name of the queued resource and of its node (required)
#   --zone=ZONE               zone (required)
#   --project=PROJECT         project; that of gcloud's configuration if not given
#   --accelerator-type=TYPE   v4-8, v5litepod-1, -4, -8, v5p-8, v6e-1, -4 or -8 (create, run --keep, all)
#   --runtime-version=IMAGE   image of the VM; follows from the accelerator type if not given
#   --spot, --reserved        kind of capacity; on demand if neither is given
#   --wait-minutes=N          give up waiting for ACTIVE after so long (default 120; 0: never)
#   --config=FILE[:VARIANT]   what to train (run, all); --config.KEY=VALUE is handed on
#   --workdir=DIR             folder of the run on the VM (default runs/NAME), see below
#   --gcs-bucket=BUCKET       mount this bucket with gcsfuse
#   --nfs=HOST:/EXPORT        mount this Filestore or NFS export
#   --mount=DIR               where (default /mnt/charlm)
#   --setup-command=COMMAND   run this on the VM before anything is installed
#   --keep                    run, all: stay, watch, and after a preemption request a new TPU and go on
#   --restarts=N              restarts after a crash of the training on the VM (default 3)
#   --poll-seconds=N          seconds between two looks at the state (default 30)
#   --dry-run                 print the commands and do nothing; works without gcloud
#   -h, --help                print this
#
# One host only. charlm does not yet train on several hosts, so accelerator types with more than one are refused.
#
# The workdir must be a folder: charlm writes to a file system, not to gs:// addresses. Without --gcs-bucket or --nfs a
# relative workdir lies in the home folder of the VM and is gone with it. With one of them it lies under --mount and
# survives a preemption; --keep asks for that. NFS is the safer choice. gcsfuse uploads a file when it is closed, so the
# last lines of metrics.jsonl and log.txt may be lost when a VM vanishes (checkpoints are not affected: an incomplete one
# is ignored), and the bucket should have a hierarchical namespace, because checkpoints are finished by renaming a folder.
# If the image lacks gcsfuse and its package source, install it with --setup-command.
#
# Needs: gcloud, logged in, with the TPU API enabled. The VM gets Python 3.11 and an environment of its own.

set -euo pipefail

readonly CODE=charlm ENVIRONMENT=charlm-env ARCHIVE=charlm.tar.gz # in the home folder of the VM
readonly SSH_TRIES=10 UNKNOWN_TRIES=10                             # looks before an answer is given up

usage() { sed -n '2,/^$/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }

die() {
  printf 'error: %s\n' "$1" >&2
  exit "${2:-2}"
}

say() { printf '%s %s\n' "$(date +%H:%M:%S)" "$1" >&2; }

# Quotes words so that they can be pasted into a shell.
quote() {
  local word line=""
  for word in "$@"; do
    [[ $word =~ ^[A-Za-z0-9_./:=,@%+~-]+$ ]] || word="'${word//\'/\'\\\'\'}'"
    line+="$word "
  done
  printf '%s' "${line% }"
}

# ---------------------------------------------------------------------------------------------------------------------
# Arguments

name="" zone="" project="" accelerator="" runtime="" tier="" wait_minutes=120 config="" workdir="" bucket="" nfs=""
mount=/mnt/charlm setup_command="" keep=false restarts=3 poll=30 dry_run=false action=""
overrides=() commit=""
for argument in "$@"; do
  value=${argument#*=}
  case $argument in
    create | setup | run | status | logs | delete | all)
      [[ -z $action ]] || die "two commands: $action and $argument"
      action=$argument
      ;;
    --name=?*) name=$value ;;
    --zone=?*) zone=$value ;;
    --project=?*) project=$value ;;
    --accelerator-type=?*) accelerator=$value ;;
    --runtime-version=?*) runtime=$value ;;
    --spot | --reserved)
      [[ -z $tier || $tier == "$argument" ]] || die "--spot and --reserved exclude each other"
      tier=$argument
      ;;
    --wait-minutes=?*) wait_minutes=$value ;;
    --config=?*) config=$value ;;
    --config.?*=*) overrides+=("$argument") ;;
    --workdir=?*) workdir=$value ;;
    --gcs-bucket=?*) bucket=${value#gs://} ;;
    --nfs=?*) nfs=$value ;;
    --mount=?*) mount=${value%/} ;;
    --setup-command=?*) setup_command=$value ;;
    --keep) keep=true ;;
    --restarts=?*) restarts=$value ;;
    --poll-seconds=?*) poll=$value ;;
    --dry-run) dry_run=true ;;
    -h | --help) usage && exit 0 ;;
    *) die "unexpected argument '$argument' (options are written --name=value); --help lists commands and options" ;;
  esac
done

check_number() { [[ $2 =~ ^[0-9]{1,6}$ ]] || die "$1=$2 is not a whole number"; }

# Sets `runtime`, and refuses what charlm cannot train on.
check_accelerator() {
  local sizes image
  case $accelerator in
    "") die "--accelerator-type is missing; for example --accelerator-type=v6e-8" ;;
    v4-*) sizes="8" image=tpu-ubuntu2204-base ;;
    v5litepod-*) sizes="1 4 8" image=v2-alpha-tpuv5-lite ;;
    v5p-*) sizes="8" image=v2-alpha-tpuv5 ;;
    v6e-*) sizes="1 4 8" image=v2-alpha-tpuv6e ;;
    tpu7x*) die "--accelerator-type=$accelerator: this generation is offered through GKE only, not as a TPU VM" ;;
    *) die "--accelerator-type=$accelerator is not known; expected v4-8, v5litepod-8, v5p-8, v6e-8 or a smaller one" ;;
  esac
  [[ " $sizes " == *" ${accelerator#*-} "* ]] ||
    die "--accelerator-type=$accelerator is not one host, and charlm trains on one host only; sizes of ${accelerator%%-*} with one host: $sizes"
  runtime=${runtime:-$image}
}

# Sets `remote_workdir`, quoted for the shell of the VM, which expands $HOME.
check_workdir() {
  workdir=${workdir:-runs/$name}
  case $workdir in
    gs://*) die "--workdir=$workdir: charlm needs a folder; use --gcs-bucket=BUCKET and a relative --workdir" ;;
    "$mount"/*) remote_workdir=$(quote "$workdir") ;;
    /*)
      [[ -z $bucket$nfs ]] || die "--workdir=$workdir lies outside the mounted folder $mount; give a relative one"
      remote_workdir=$(quote "$workdir")
      ;;
    *) if [[ -n $bucket$nfs ]]; then remote_workdir=$(quote "$mount/$workdir"); else remote_workdir="\$HOME/$(quote "$workdir")"; fi ;;
  esac
}

[[ -n $action ]] || die "no command; expected create, setup, run, status, logs, delete or all (--help explains them)"
[[ -n $name ]] || die "--name is missing"
[[ $name =~ ^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$ ]] || die "--name=$name: expected lower-case letters, digits and hyphens"
[[ -n $zone ]] || die "--zone is missing"
[[ -z $bucket || -z $nfs ]] || die "--gcs-bucket and --nfs exclude each other"
[[ $mount == /?* ]] || die "--mount=$mount must be an absolute path"
check_number --wait-minutes "$wait_minutes"
check_number --restarts "$restarts"
check_number --poll-seconds "$poll"
if $keep; then
  [[ $action == run || $action == all ]] || die "--keep belongs to run and all"
  [[ -n $bucket$nfs ]] || die "--keep needs a workdir that outlives the TPU: give --gcs-bucket or --nfs"
fi
if [[ $action == create || $action == all ]] || $keep; then check_accelerator; fi
check_workdir
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [[ $action == run || $action == all ]]; then
  [[ -n $config ]] || die "--config is missing; for example --config=configs/hlm_base.py"
  [[ $config != /* && -f ${config%%:*} ]] || die "--config: no file ${config%%:*} in this repository"
fi
$dry_run || command -v gcloud >/dev/null || die "gcloud is not installed; --dry-run works without it" 1

where=("--zone=$zone")
[[ -z $project ]] || where+=("--project=$project")
readonly where

# ---------------------------------------------------------------------------------------------------------------------
# Commands that change something go through `run`, questions through `ask`.

exec 3>&1 # where a dry run prints, also from inside $(...)
readonly tpu=(gcloud compute tpus)
readonly ssh=("${tpu[@]}" tpu-vm ssh "$name" "${where[@]}" --worker=all --quiet)

run() {
  if $dry_run; then printf '%s\n' "$(quote "$@")" >&3; else "$@"; fi
}

ask() {
  if $dry_run; then run "$@"; else "$@" 2>/dev/null; fi
}

queue_state() {
  local state
  state=$(ask "${tpu[@]}" queued-resources describe "$name" "${where[@]}" '--format=value(state.state)') || true
  if $dry_run; then echo ACTIVE; else echo "${state:-UNKNOWN}"; fi
}

# What launch/local.sh says of the training; empty when the VM does not answer.
training_state() {
  ask "${ssh[@]}" "--command=bash $CODE/launch/local.sh --status --workdir=$remote_workdir" | tail -n 1 || true
}

# ---------------------------------------------------------------------------------------------------------------------
# create

request() {
  local flags=("--node-id=$name" "--accelerator-type=$accelerator" "--runtime-version=$runtime")
  [[ -z $tier ]] || flags+=("$tier")
  run "${tpu[@]}" queued-resources create "$name" "${where[@]}" "${flags[@]}" --quiet
}

# Returns 0 when ACTIVE, 1 when the request failed, 3 when the TPU was taken away, 4 after the time-out.
wait_active() {
  local state before="" unknown=0 deadline=$((SECONDS + 60 * wait_minutes))
  while true; do
    state=$(queue_state)
    [[ $state == "$before" ]] || $dry_run || say "$name is $state"
    before=$state
    case $state in
      ACTIVE) return 0 ;;
      FAILED) return 1 ;;
      SUSPENDING | SUSPENDED | DELETING) return 3 ;;
      UNKNOWN) unknown=$((unknown + 1)) ;;
      *) unknown=0 ;; # CREATING, ACCEPTED, WAITING_FOR_RESOURCES, PROVISIONING
    esac
    ((unknown < UNKNOWN_TRIES)) || return 1
    ((wait_minutes == 0 || SECONDS < deadline)) || return 4
    sleep "$poll"
  done
}

create() {
  local code
  request
  while true; do
    code=0
    wait_active || code=$?
    case $code in
      0) return ;;
      1) die "$name: the request failed; '${tpu[*]} queued-resources describe $name ${where[*]}' says why; delete it and try again" 1 ;;
      3)
        $keep || die "$name: the TPU was taken away before it could be used; delete it and create it again" 1
        delete_tpu || true
        request
        ;;
      4) die "$name: not ACTIVE after $wait_minutes minutes; it stays in the queue until it is deleted (--wait-minutes waits longer)" 1 ;;
    esac
  done
}

delete_tpu() { run "${tpu[@]}" queued-resources delete "$name" "${where[@]}" --force --quiet; }

# ---------------------------------------------------------------------------------------------------------------------
# setup: every step is chained, because `set -e` does not reach into a function whose result is tested

wait_for_ssh() {
  local try
  if $dry_run; then return; fi
  for ((try = 1; try <= SSH_TRIES; try++)); do
    if "${ssh[@]}" --command=true >/dev/null 2>&1; then return; fi
    sleep "$poll"
  done
  say "$name does not answer to ssh"
  return 1
}

# The commit is settled once, so that a TPU requested anew goes on with the same code.
stage_code() {
  local archive=${TMPDIR:-/tmp}/charlm-$name.tar.gz code=0
  if [[ -z $commit ]]; then
    commit=$(git rev-parse HEAD) || return 1
    [[ -z $(git status --porcelain --untracked-files=no) ]] || say "note: only the last commit is copied, changes since then are not"
  fi
  run git archive --format=tar.gz "--output=$archive" "$commit" &&
    run "${tpu[@]}" tpu-vm scp "$archive" "$name:$ARCHIVE" "${where[@]}" --worker=all --quiet &&
    run "${ssh[@]}" "--command=mkdir -p $CODE && tar -xzf $ARCHIVE -C $CODE" || code=$?
  run rm -f "$archive"
  return "$code"
}

# The images come with an older Python than jax needs, so uv fetches one.
install() {
  local steps=(
    "set -e"
    "test -x uv/bin/uv || python3 -m pip install --quiet --target=uv uv"
    "test -x $ENVIRONMENT/bin/python || uv/bin/uv venv --quiet --python=3.11 $ENVIRONMENT"
    "uv/bin/uv pip install --quiet --python=$ENVIRONMENT/bin/python 'jax[tpu]' -e './${CODE}[text,tensorboard]'"
    "JAX_PLATFORMS=tpu,cpu $ENVIRONMENT/bin/python -c 'import jax; print(jax.devices())'"
  )
  run "${ssh[@]}" "--command=$(join "${steps[@]}")"
}

mount_shared() {
  local folder steps=()
  folder=$(quote "$mount")
  if [[ -n $bucket ]]; then
    steps=(
      "command -v gcsfuse >/dev/null || sudo apt-get install -y -q gcsfuse || { echo 'error: install gcsfuse with --setup-command, or use --nfs' >&2; exit 1; }"
      "sudo mkdir -p $folder"
      "sudo chown \$(id -u) $folder"
      "gcsfuse --implicit-dirs --rename-dir-limit=100000 $(quote "$bucket") $folder"
    )
  elif [[ -n $nfs ]]; then
    steps=(
      "command -v mount.nfs >/dev/null || sudo apt-get install -y -q nfs-common"
      "sudo mkdir -p $folder"
      "sudo mount -t nfs $(quote "$nfs") $folder"
      "sudo mkdir -p $remote_workdir"
      "sudo chown \$(id -u) $remote_workdir"
    )
  else
    return 0
  fi
  run "${ssh[@]}" "--command=set -e; mountpoint -q $folder || { $(join "${steps[@]}"); }"
}

join() {
  local line
  printf -v line '%s; ' "$@"
  printf '%s' "${line%; }"
}

setup() {
  wait_for_ssh &&
    { [[ -z $setup_command ]] || run "${ssh[@]}" "--command=$setup_command"; } &&
    stage_code &&
    install &&
    mount_shared
}

# ---------------------------------------------------------------------------------------------------------------------
# run

start() {
  local words=(--background "--python=../$ENVIRONMENT/bin/python" "--restarts=$restarts" "--config=$config")
  words+=(${overrides[@]+"${overrides[@]}"})
  # tpu,cpu: jax fails when it finds no TPU, instead of training on the CPU
  run "${ssh[@]}" "--command=cd $CODE && JAX_PLATFORMS=tpu,cpu bash launch/local.sh --workdir=$remote_workdir $(quote "${words[@]}")"
}

# Requests the TPU anew and goes on; what fails here is tried again by `watch`.
replace() {
  say "$name: $1; requesting it anew"
  delete_tpu || true
  create
  { setup && start; } || say "$name: could not be set up; trying again"
}

# Looks at the training until it has ended by itself.
watch() {
  local training unanswered=0 unknown=0
  while true; do
    case $(queue_state) in
      ACTIVE)
        unknown=0
        training=$(training_state)
        case $training in
          running) unanswered=0 ;;
          "ended 0") say "$name: the training is finished; '${0##*/} delete' gives the TPU back" && return ;;
          "ended 130" | "ended 143" | interrupted | "never started")
            say "$name: training $training; starting it"
            start || say "$name: could not be started; trying again"
            ;;
          "ended "*) die "$name: the training $training; '${0##*/} logs' says why" 1 ;;
          *) unanswered=$((unanswered + 1)) ;;
        esac
        ;;
      FAILED | SUSPENDING | SUSPENDED) replace "taken away" ;;
      UNKNOWN)
        unknown=$((unknown + 1)) unanswered=0
        ((unknown < UNKNOWN_TRIES)) || die "$name: its state cannot be read (deleted? not logged in?); no longer watching" 1
        ;;
    esac
    if ((unanswered == SSH_TRIES)); then
      unanswered=0
      replace "does not answer"
    fi
    sleep "$poll"
  done
}

describe_watch() {
  echo "# then, every $poll s, until the training has ended:"
  queue_state >/dev/null
  training_state
  echo "# and when the TPU was taken away:"
  delete_tpu
  create
  setup
  start
}

train() {
  start
  if $keep && $dry_run; then describe_watch; elif $keep; then watch; fi
}

case $action in
  create) create ;;
  setup) setup ;;
  run) train ;;
  all)
    create
    setup
    train
    ;;
  status)
    run "${tpu[@]}" queued-resources describe "$name" "${where[@]}" '--format=value(state.state)'
    run "${ssh[@]}" "--command=bash $CODE/launch/local.sh --status --workdir=$remote_workdir"
    ;;
  logs) run "${ssh[@]}" "--command=tail -n 100 -F $remote_workdir/log.txt" ;;
  delete) delete_tpu ;;
esac
