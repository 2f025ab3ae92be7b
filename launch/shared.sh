# What the scripts beside it share: help, errors and quoting. They source it; it does nothing by itself.
# slurm.sh has its own copy of `usage`, `die` and the quoting, because Slurm copies that one file to where the job runs.
# shellcheck shell=bash

# Prints the comment on top of the script that runs.
usage() { sed -n '2,/^$/s/^# \{0,1\}//p' "$0"; }

die() {
  printf 'error: %s\n' "$1" >&2
  exit "${2:-2}"
}

# Quotes words so that they can be pasted into a shell.
quote() {
  local word line=""
  for word in "$@"; do
    [[ $word =~ ^[A-Za-z0-9_./:=,@%+~-]+$ ]] || word="'${word//\'/\'\\\'\'}'"
    line+="$word "
  done
  printf '%s' "${line% }"
}

# Refuses 010, too, which bash and YAML read as 8.
check_number() { [[ $2 =~ ^(0|[1-9][0-9]{0,5})$ ]] || die "$1=$2 is not a whole number, without zeros in front"; }
