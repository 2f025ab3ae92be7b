#!/usr/bin/env bash
# Pre-trains on this machine (CPU or its GPUs), or on this and others together, and starts again after a crash.
#
#   launch/local.sh --config=configs/hlm_base.py:tiny --workdir=runs/hlm
#   launch/local.sh --config=configs/hlm_base.py --workdir=runs/hlm --background --config.optim.learning_rate=1e-4
#   launch/local.sh --workdir=runs/hlm --status        (or --stop: save a checkpoint and end)
#   launch/local.sh --config=configs/hlm_base.py --workdir=/shared/runs/hlm --background \
#       --multihost --coordinator=HOST:PORT --processes=N --process=I        (on each of N hosts, with I from 0)
#
#   --config=FILE[:VARIANT]  what to train
#   --config.KEY=VALUE       any key of charlm/config/__init__.py, handed on as it is
#   --workdir=DIR            folder of the run; runs/NAME_OF_THE_CONFIG if not given; output is added to DIR/log.txt
#   --background             return at once; the run outlives the terminal
#   --restarts=N             restarts after crashes that follow one another (default 3); a run that trained for a day since
#                            its last crash has all of them again; the same command goes on where the run stopped
#   --pause=SECONDS          wait before a restart (default 10; with --multihost 150)
#   --multihost              train together with other hosts, on which the same command is started; DIR is shared by all
#   --coordinator=HOST:PORT  a free port of process 0; JAX finds it, N and I by itself on Cloud TPU
#   --processes=N            how many processes there are
#   --process=I              number of this one, from 0
#   --python=PROGRAM         interpreter that has charlm installed (default python)
#   --status                 print one of: running, ended CODE, interrupted, never started
#   --stop                   end the run that --background started, after it has saved
#   --dry-run                print the commands and do nothing
#   -h, --help               print this
#
# Relative paths start at the root of the repository. Environment variables such as CUDA_VISIBLE_DEVICES and XLA_FLAGS
# reach the training as they are. On Linux, GLIBC_TUNABLES=glibc.malloc.hugetlb=1 is set where it is unset: huge pages make
# steps on CPUs faster. A run that ends with exit code 1 in under 30 seconds twice in a row has a mistake in
# its config or data, and is not started a third time.
#
# With --multihost, the output of this host and its state are kept in DIR as log.ME.txt and launch_state.ME, where ME is
# the number of the process, or else the name of the host; --status and --stop are about this host, and need the same
# --multihost and --process. Process 0 reports the training, the others only what is wrong. While all train, --stop on
# one host makes all save and end.
#
# When a process dies, the others notice within seconds, at worst within 100 s, and fail too. The pause is longer, so every process
# has ended before the first one starts again, and JAX then waits 5 minutes for all to come. So a crash anywhere is one
# restart everywhere. When a host stays away, the others fail --restarts times more, and then give up as well.

set -euo pipefail

export GLIBC_TUNABLES="${GLIBC_TUNABLES-glibc.malloc.hugetlb=1}" # read by glibc when a program starts, by no other libc

readonly QUICK_SECONDS=30
readonly SOUND_SECONDS=${CHARLM_SOUND_SECONDS:-86400} # after which crashes before do not count
readonly MULTIHOST_PAUSE=150 # more than the 100 s after which JAX takes a silent process for dead

# shellcheck source=launch/shared.sh
source "$(dirname "${BASH_SOURCE[0]}")/shared.sh"

# Prints a command so that it can be pasted into a shell.
show() { printf '%s\n' "$(quote "$@")"; }

config="" workdir="" restarts=3 pause="" python=python action=run background=false dry_run=false
multihost=false process="" me="" overrides=() together=()
for argument in "$@"; do
  case $argument in
    --config=?*) config=${argument#*=} ;;
    --config.?*=*) overrides+=("$argument") ;;
    --workdir=?*) workdir=${argument#*=} ;;
    --restarts=?*) restarts=${argument#*=} ;;
    --pause=?*) pause=${argument#*=} ;;
    --python=?*) python=${argument#*=} ;;
    --multihost) multihost=true ;;
    --coordinator=?*:?* | --processes=?*) together+=("$argument") ;;
    --process=?*) process=${argument#*=} together+=("$argument") ;;
    --background) background=true ;;
    --status) action=status ;;
    --stop) action=stop ;;
    --dry-run) dry_run=true ;;
    -h | --help) usage && exit 0 ;;
    *) die "unexpected argument '$argument' (options are written --name=value); --help lists them" ;;
  esac
done

cd "$(dirname "${BASH_SOURCE[0]}")/.."
[[ -n $config || ($action != run && -n $workdir) ]] || die "--config is missing; for example --config=configs/hlm_base.py:tiny"
[[ $action != run || -f ${config%%:*} ]] || die "--config: no file ${config%%:*}"
check_number --restarts "$restarts"
if $multihost; then
  together=(--multihost ${together[@]+"${together[@]}"})
  pause=${pause:-$MULTIHOST_PAUSE}
  me=${process:-$HOSTNAME}
elif ((${#together[@]})); then
  die "--coordinator, --processes and --process belong to --multihost"
fi
[[ -z $process ]] || check_number --process "$process"
check_number --pause "${pause:=10}"
if [[ -z $workdir ]]; then # as charlm.main names it
  stem=$(basename "${config%%:*}" .py)
  [[ $config == *:?* ]] && stem+="_${config#*:}"
  workdir=runs/$stem
fi
case $workdir in
  [A-Za-z]*:/* | gs:* | s3:*) die "--workdir=$workdir is an address: charlm needs a folder; mount it and name that" ;;
esac
readonly log=$workdir/log${me:+.$me}.txt state_file=$workdir/launch_state${me:+.$me}
export CHARLM_LOG_FILE=$log # charlm keeps a log there itself, if nobody else does
command=("$python" -m charlm.main ${together[@]+"${together[@]}"} "--config=$config" "--workdir=$workdir")
command+=(${overrides[@]+"${overrides[@]}"})

# Prints running, ended CODE, interrupted (it never got to write its end) or never started.
state() {
  local what="" host="" pid=""
  [[ ! -f $state_file ]] || read -r what host pid <"$state_file" || true
  case $what in
    "") echo "never started" ;;
    ended) echo "ended $host" ;;
    *) if ours_is_alive "$host" "$pid"; then echo "running"; else echo "interrupted"; fi ;;
  esac
}

note_state() { echo "$1" >"$state_file.$$" && mv "$state_file.$$" "$state_file"; }

# A process number may belong to another program after a reboot, and to another machine on shared storage.
ours_is_alive() {
  [[ $1 == "$HOSTNAME" && -n $2 && $2 != "$$" ]] && kill -0 "$2" 2>/dev/null || return 1
  ! command -v ps >/dev/null || [[ $(ps -o args= -p "$2") == *local.sh* ]]
}

say() { printf '%s launch: %s\n' "$(date +%H:%M:%S)" "$1" | tee -a "$log"; }

train_once() {
  local printing=$state_file.printing.$$
  : >"$printing"
  "${command[@]}" > >(trap '' INT TERM && tee -ia "$log" && rm -f "$printing") 2>&1 </dev/null &
  child=$!
  wait "$child" && code=0 || code=$?
  # A trapped signal ends `wait` early, while the training still saves.
  while kill -0 "$child" 2>/dev/null; do wait "$child" && code=0 || code=$?; done
  child=""
  # Its last lines come before what is said of its end, unless a process that it left behind keeps the pipe open.
  for _ in {1..20}; do
    [[ -e $printing ]] || break
    sleep 0.1
  done
  rm -f "$printing"
}

pass_signal() {
  stopped_by=$1
  [[ -z $child ]] || kill -TERM "$child" 2>/dev/null || true
}

finish() {
  note_state "ended $1"
  exit "$1"
}

# Trains until it ends well, is stopped, or has used up its restarts.
supervise() {
  local quick=0 done_restarts=0 started
  child="" stopped_by=0
  note_state "running $HOSTNAME $$"
  trap 'pass_signal 130' INT
  trap 'pass_signal 143' TERM
  while true; do
    started=$SECONDS
    train_once
    ((stopped_by == 0)) || finish "$stopped_by"
    ((code != 0)) || finish 0
    if ((code == 1 && SECONDS - started < QUICK_SECONDS)); then quick=$((quick + 1)); else quick=0; fi
    if ((quick == 2)); then
      say "ended twice in a row with exit code 1 in under $QUICK_SECONDS s: not a crash but a mistake, see above; not restarting"
      finish 1
    fi
    if ((SECONDS - started >= SOUND_SECONDS)); then done_restarts=0; fi
    if ((done_restarts == restarts)); then
      say "ended with exit code $code after $restarts restarts in a row; giving up"
      finish "$code"
    fi
    done_restarts=$((done_restarts + 1))
    say "ended with exit code $code; restart $done_restarts of $restarts in $pause s"
    sleep "$pause" &
    wait $! || true
    ((stopped_by == 0)) || finish "$stopped_by"
  done
}

stop() {
  local pid
  [[ $(state) == running ]] || die "nothing runs in $workdir here ($(state))"
  read -r _ _ pid <"$state_file"
  if $dry_run; then show kill -TERM "$pid" && return; fi
  kill -TERM "$pid"
  echo "asked process $pid to save and end; see $log"
}

case $action in
  status) echo "${me:+$me: }$(state)" && exit 0 ;;
  stop) stop && exit 0 ;;
esac

if $dry_run; then
  show mkdir -p "$workdir"
  if $background; then ending=' >>'$(show "$log")' 2>&1 &'; else ending=' 2>&1 | tee -ia '$(show "$log"); fi
  printf '%s%s\n' "$(show "${command[@]}")" "$ending"
  exit 0
fi

[[ $(state) != running ]] || die "$workdir is being trained already; --status and --stop work on it"
command -v "$python" >/dev/null || die "no program $python; activate the environment that has charlm, or give --python"
if ! { mkdir -p "$workdir" && touch "$log"; } 2>/dev/null; then die "--workdir=$workdir cannot be written"; fi
if $background; then
  again=()
  for argument in "$@"; do [[ $argument == --background ]] || again+=("$argument"); done
  nohup "$BASH" launch/local.sh "${again[@]}" >/dev/null 2>&1 </dev/null &
  note_state "running $HOSTNAME $!"
  echo "training in the background as process $!: tail -f $log"
else
  supervise
fi
