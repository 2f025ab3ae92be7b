#!/usr/bin/env bash
# Pre-trains on a Cloud TPU slice, of one host or many, that is requested as a queued resource.
#
#   launch/tpu_pod.sh all --name=hlm --zone=us-east5-b --accelerator-type=v6e-8 --spot --keep \
#       --gcs-bucket=my-bucket --config=configs/hlm_base.py --workdir=runs/hlm --config.data.train='tfds:wikipedia:train'
#   launch/tpu_pod.sh logs   --name=hlm --zone=us-east5-b --gcs-bucket=my-bucket --workdir=runs/hlm
#   launch/tpu_pod.sh delete --name=hlm --zone=us-east5-b
#   launch/tpu_pod.sh all --name=big --zone=us-east5-b --accelerator-type=v6e-64 --spot --keep \
#       --nfs=10.0.0.2:/share --config=configs/hlm_large.py --workdir=runs/big
#
# Commands:
#   create   request the TPU and wait until it is ACTIVE
#   setup    copy the code (the last commit of this repository) to every host, install it, mount the shared folder
#   run      start the training in the background on every host, or go on where it stopped
#   status   state of the TPU, and of the training on every host
#   logs     follow the log of the training, which is that of host 0; --worker=N: that of another host
#   delete   give the TPU back
#   all      create, setup, run
#
# Options:
#   --name=NAME               name of the queued resource and of its node (required)
#   --zone=ZONE               zone (required)
#   --project=PROJECT         project; that of gcloud's configuration if not given
#   --accelerator-type=TYPE   see below (needed by create, run --keep and all; the others ask the TPU if it is not given)
#   --runtime-version=IMAGE   image of the VM; follows from the accelerator type if not given
#   --spot, --reserved        kind of capacity; on demand if neither is given
#   --wait-minutes=N          give up waiting for ACTIVE after so long (default 120; 0: never)
#   --config=FILE[:VARIANT]   what to train (run, all); --config.KEY=VALUE is handed on
#   --workdir=DIR             folder of the run on the TPU (default runs/NAME), see below
#   --gcs-bucket=BUCKET       mount this bucket with gcsfuse
#   --nfs=HOST:/EXPORT        mount this Filestore or NFS export
#   --mount=DIR               where (default /mnt/charlm)
#   --setup-command=COMMAND   run this on every host before anything is installed
#   --worker=N                host whose log is shown (logs; default 0)
#   --keep                    run, all: stay, watch, and after a preemption request a new TPU and go on
#   --restarts=N              restarts after a crash of the training (default 3)
#   --poll-seconds=N          seconds between two looks at the state (default 30)
#   --dry-run                 print the commands and do nothing; works without gcloud
#   -h, --help                print this
#
# Accelerator types, N being TensorCores for v4 and v5p (two a chip), chips for the others:
#   v4-N, v5p-N          8 (one host), 16, 32, 64 and multiples of 128; 4 chips a host
#   v5litepod-N, v6e-N   1, 4, 8 (one host), 16, 32, 64, 128, 256; 4 chips a host
#
# The workdir must be a folder, not a gs:// address, because launch/local.sh keeps logs there. Without --gcs-bucket or --nfs
# a relative workdir lies in the home folder of the VM and is gone with it. With one of them it lies under --mount and
# survives a preemption; --keep asks for that, and so do several hosts, which all write to the workdir. NFS is the safer
# choice. gcsfuse uploads a file when it is closed, so the last lines of metrics.jsonl and of the log may be lost when a
# VM vanishes (checkpoints are not affected: an incomplete one is ignored), and the bucket should have a hierarchical
# namespace, because checkpoints are finished by renaming a folder. If the image lacks gcsfuse and its package source,
# install it with --setup-command.
#
# Several hosts train as one: each runs launch/local.sh --multihost, which says what happens when one of them crashes,
# and keeps log.HOST.txt and launch_state.HOST in the workdir. --keep looks at all of them. A host where nothing runs
# while the others wait for it (it was rebooted, say) is started after 10 looks; all are when none runs and no one failed.
#
# Needs: gcloud, logged in, with the TPU API enabled. The VMs get Python 3.11 and an environment of their own.

set -euo pipefail

readonly CODE=charlm ENVIRONMENT=charlm-env ARCHIVE=charlm.tar.gz # in the home folder of the VM
readonly SSH_TRIES=10 UNKNOWN_TRIES=10                             # looks before an answer is given up
readonly MIXED_TRIES=10                                            # looks in which hosts can end or start together

# shellcheck source=launch/shared.sh
source "$(dirname "${BASH_SOURCE[0]}")/shared.sh"

say() { printf '%s %s\n' "$(date +%H:%M:%S)" "$1" >&2; }

# ---------------------------------------------------------------------------------------------------------------------
# Arguments

name="" zone="" project="" accelerator="" runtime="" tier="" wait_minutes=120 config="" workdir="" bucket="" nfs=""
mount=/mnt/charlm setup_command="" keep=false restarts=3 poll=30 dry_run=false action="" worker=""
hosts="" overrides=() commit=""
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
    --worker=?*) worker=$value ;;
    --keep) keep=true ;;
    --restarts=?*) restarts=$value ;;
    --poll-seconds=?*) poll=$value ;;
    --dry-run) dry_run=true ;;
    -h | --help) usage && exit 0 ;;
    *) die "unexpected argument '$argument' (options are written --name=value); --help lists commands and options" ;;
  esac
done

# Sets `hosts` and `runtime`, and refuses what is not offered.
check_accelerator() {
  local size=${accelerator#*-} chips image
  case $accelerator in
    "") die "--accelerator-type is missing; for example --accelerator-type=v6e-8" ;;
    v4-*) image="tpu-ubuntu2204-base" ;;
    v5litepod-*) image=v2-alpha-tpuv5-lite ;;
    v5p-*) image=v2-alpha-tpuv5 ;;
    v6e-*) image=v2-alpha-tpuv6e ;;
    tpu7x*) die "--accelerator-type=$accelerator: this generation is offered through GKE only, not as a TPU VM" ;;
    *) die "--accelerator-type=$accelerator is not known; expected for example v4-8, v5litepod-8, v5p-8 or v6e-8" ;;
  esac
  case $accelerator in
    v4-* | v5p-*)
      [[ $size =~ ^(8|16|32|64)$ ]] || { [[ $size =~ ^[1-9][0-9]{2,4}$ ]] && ((size % 128 == 0 && size <= 12288)); } ||
        die "--accelerator-type=$accelerator: sizes of ${accelerator%%-*} are 8, 16, 32, 64 and multiples of 128 up to 12288"
      chips=$((size / 2))
      ;;
    *)
      [[ $size =~ ^(1|4|8|16|32|64|128|256)$ ]] ||
        die "--accelerator-type=$accelerator: sizes of ${accelerator%%-*} are 1, 4, 8, 16, 32, 64, 128 and 256"
      chips=$size
      ;;
  esac
  if ((size <= 8)); then hosts=1; else hosts=$((chips / 4)); fi
  runtime=${runtime:-$image}
}

# Sets `hosts` from the TPU when no type was given.
find_hosts() {
  if [[ -z $hosts ]]; then
    accelerator=$(ask "${tpu[@]}" tpu-vm describe "$name" "${where[@]}" '--format=value(acceleratorType)') || true
    if $dry_run; then
      say "assuming one host; --accelerator-type says how many there are"
      hosts=1
    else
      [[ -n $accelerator ]] || die "$name: its accelerator type cannot be read (no such TPU? not logged in?)" 1
      check_accelerator
    fi
  fi
  check_shared
}

check_shared() {
  ((hosts == 1)) || [[ -n $bucket$nfs ]] ||
    die "--accelerator-type=$accelerator has $hosts hosts, and they need one workdir that all share: give --gcs-bucket or --nfs"
}

# Sets `remote_workdir`, quoted for the shell of the VM, which expands $HOME.
check_workdir() {
  workdir=${workdir:-runs/$name}
  [[ -z $bucket$nfs || /$workdir/ != */../* ]] ||
    die "--workdir=$workdir: a path with .. may lie outside the mounted folder $mount"
  case $workdir in
    *:*) die "--workdir=$workdir: charlm needs a folder; use --gcs-bucket=BUCKET and a relative --workdir" ;;
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
[[ -z $worker || $action == logs ]] || die "--worker belongs to logs"
check_number --worker "${worker:=0}"
if [[ -n $accelerator || $action == create || $action == all ]] || $keep; then check_accelerator; fi
case $action in create | delete) ;; *) [[ -z $hosts ]] || check_shared ;; esac
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
readonly ssh_to=("${tpu[@]}" tpu-vm ssh "$name" "${where[@]}")
readonly ssh=("${ssh_to[@]}" --worker=all --quiet)

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

# Asks every host what launch/local.sh says of its training.
status_command() {
  local multihost=""
  ((hosts == 1)) || multihost=" --multihost"
  printf '%s' "bash $CODE/launch/local.sh --status$multihost --workdir=$remote_workdir"
}

# What all hosts say of the training. When they differ and some run: mixed, or failing when one gave up; when none runs:
# a failure if there is one, else what is not finished. Empty when one does not answer.
training_state() {
  local answers count first failed
  answers=$(ask "${ssh[@]}" "--command=$(status_command)" |
    grep -Eo '(running|ended [0-9]+|interrupted|never started)$' | sort) || true
  count=$(grep -c . <<<"$answers") || true
  ((count >= hosts)) || return 0
  first=$(head -n 1 <<<"$answers")
  if [[ $first == "$(tail -n 1 <<<"$answers")" ]]; then
    echo "$first"
    return 0
  fi
  failed=$(grep -Evx 'ended (0|130|143)|running|interrupted|never started' <<<"$answers" | head -n 1) || true
  if grep -qx running <<<"$answers"; then
    if [[ -n $failed ]]; then echo failing; else echo mixed; fi
  else
    echo "${failed:-$(grep -vx 'ended 0' <<<"$answers" | head -n 1)}"
  fi
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
  )
  # On several hosts each would wait for the others to open their part of the slice.
  if ((hosts == 1)); then
    steps+=("JAX_PLATFORMS=tpu,cpu $ENVIRONMENT/bin/python -c 'import jax; print(jax.devices())'")
  else
    steps+=("$ENVIRONMENT/bin/python -c 'import jax, charlm; print(jax.__version__)'")
  fi
  run "${ssh[@]}" "--command=$(join "${steps[@]}")"
}

# Several hosts must see at once what another has written, so nothing of it may be cached; gcsfuse caches for ever on the
# larger TPU VMs if it is not told otherwise.
mount_shared() {
  local folder steps=() gcs_fresh="" nfs_fresh=""
  folder=$(quote "$mount")
  if ((hosts > 1)); then
    gcs_fresh=" --metadata-cache-ttl-secs=0 --metadata-cache-negative-ttl-secs=0"
    nfs_fresh=" -o lookupcache=positive,actimeo=3"
  fi
  if [[ -n $bucket ]]; then
    steps=(
      "command -v gcsfuse >/dev/null || sudo apt-get install -y -q gcsfuse || { echo 'error: install gcsfuse with --setup-command, or use --nfs' >&2; exit 1; }"
      "sudo mkdir -p $folder"
      "sudo chown \$(id -u) $folder"
      "gcsfuse --implicit-dirs --rename-dir-limit=100000$gcs_fresh $(quote "$bucket") $folder"
    )
  elif [[ -n $nfs ]]; then
    steps=(
      "command -v mount.nfs >/dev/null || sudo apt-get install -y -q nfs-common"
      "sudo mkdir -p $folder"
      "sudo mount -t nfs$nfs_fresh $(quote "$nfs") $folder"
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
  find_hosts &&
    wait_for_ssh &&
    { [[ -z $setup_command ]] || run "${ssh[@]}" "--command=$setup_command"; } &&
    stage_code &&
    install &&
    mount_shared
}

# ---------------------------------------------------------------------------------------------------------------------
# run

# On several hosts those that train already are left alone.
start() {
  local words=(--background) launch multihost=""
  find_hosts
  ((hosts == 1)) || multihost=" --multihost"
  words+=("--python=../$ENVIRONMENT/bin/python" "--restarts=$restarts" "--config=$config")
  words+=(${overrides[@]+"${overrides[@]}"})
  # tpu,cpu: jax fails when it finds no TPU, instead of training on the CPU
  launch="JAX_PLATFORMS=tpu,cpu bash launch/local.sh$multihost --workdir=$remote_workdir $(quote "${words[@]}")"
  ((hosts == 1)) || launch="{ bash launch/local.sh --status$multihost --workdir=$remote_workdir | grep ': running$' || $launch; }"
  run "${ssh[@]}" "--command=cd $CODE && $launch"
}

# A VM that was rebooted has lost the shared folder.
resume() {
  { mount_shared && start; } || say "$name: could not be started; trying again"
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
  local training unanswered=0 unknown=0 mixed=0
  while true; do
    case $(queue_state) in
      ACTIVE)
        unknown=0
        training=$(training_state)
        [[ -z $training ]] || unanswered=0
        if [[ $training == mixed ]]; then mixed=$((mixed + 1)); else mixed=0; fi
        case $training in
          running | failing) ;; # those that wait for one that gave up will do so too
          mixed)
            if ((mixed == MIXED_TRIES)); then
              mixed=0
              say "$name: the training runs on some hosts only; starting it on the others"
              resume
            fi
            ;;
          "ended 0") say "$name: the training is finished; '${0##*/} delete' gives the TPU back" && return ;;
          "ended 130" | "ended 143" | interrupted | "never started")
            say "$name: training $training; starting it"
            resume
            ;;
          "ended "*) die "$name: the training $training; '${0##*/} status' says on which host, '${0##*/} logs' says why" 1 ;;
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
  echo "# and when it was interrupted:"
  resume
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
    find_hosts
    run "${ssh[@]}" "--command=$(status_command)"
    ;;
  logs)
    find_hosts
    if ((hosts == 1)); then log=log.txt; else log="log.\$HOSTNAME.txt"; fi
    run "${ssh_to[@]}" "--worker=$worker" --quiet "--command=tail -n 100 -F $remote_workdir/$log"
    ;;
  delete) delete_tpu ;;
esac
