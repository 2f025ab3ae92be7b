#!/usr/bin/env bash
# Pre-trains or fine-tunes on a Kubernetes cluster that has JobSet: on a TPU slice of GKE, or on nodes with NVIDIA GPUs.
#
#   launch/kubernetes.sh submit --name=hlm --image=REGISTRY/charlm:tpu --accelerator-type=v6e-64 \
#       --gcs-bucket=my-bucket --config=configs/hlm_base.py --workdir=runs/hlm --config.data.train='tfds:wikipedia:train'
#   launch/kubernetes.sh submit --name=hlm --image=REGISTRY/charlm:cuda12 --nodes=4 --gpus-per-node=8 \
#       --pvc=shared --config=configs/hlm_base.py --workdir=runs/hlm
#   launch/kubernetes.sh logs --name=hlm
#
# Commands:
#   submit    create the JobSet; it starts when the nodes are free
#   manifest  print the JobSet as YAML and do nothing, for kubectl apply or a repository of manifests
#   status    state of the JobSet and of its pods
#   logs      follow the output of process 0; --worker=N: that of another
#   delete    ask the training to save and end, wait for it, and remove the JobSet
#   gcluster  submit by `gcluster job submit` of Google's Cluster Toolkit in place of kubectl
#
# Options:
#   --name=NAME               name of the JobSet (required)
#   --namespace=NAMESPACE     namespace; that of kubectl's context if not given
#   --image=IMAGE             image made with launch/Dockerfile (submit, manifest, gcluster)
#   --accelerator-type=TYPE   TPU slice, see below; or
#   --gpus-per-node=N         GPUs of each node, with
#   --nodes=N                 how many nodes (default 1) and, if the cluster has several kinds,
#   --gpu-type=TYPE           the value of GKE's label cloud.google.com/gke-accelerator, such as nvidia-h100-80gb
#   --topology=AxB[xC]        shape of the TPU slice; follows from the usual accelerator types
#   --spot                    nodes of Spot capacity (GKE)
#   --config=FILE[:VARIANT]   what to train, among the configs that the image carries; --config.KEY=VALUE is handed on
#   --workdir=DIR             folder of the run under --mount (default runs/NAME), or gs://BUCKET/PATH or s3://BUCKET/PATH
#   --gcs-bucket=BUCKET       mount this bucket with GKE's driver for gcsfuse
#   --pvc=CLAIM               mount this PersistentVolumeClaim; with several processes its access mode is ReadWriteMany
#   --nfs=HOST:/EXPORT        mount this Filestore or NFS export
#   --mount=DIR               where (default /mnt/charlm)
#   --service-account=NAME    Kubernetes service account of the pods, which --gcs-bucket needs for its rights
#   --queue=NAME              LocalQueue of Kueue
#   --restarts=N              restarts after a crash (default 3)
#   --grace-seconds=N         time from SIGTERM to the end, in which a checkpoint is written (default 600)
#   --worker=N                process whose output is shown (logs; default 0)
#   --cluster=NAME, --location=REGION, --project=PROJECT    the cluster (gcluster)
#   --dry-run                 print the commands and do nothing; works without kubectl and gcluster
#   -h, --help                print this
#
# Accelerator types, N being TensorCores for v4 and v5p (two a chip), chips for the others:
#   v4-N, v5p-N          8 (one host), 16, 32, 64 and multiples of 128; 4 chips a host
#   v5litepod-N, v6e-N   1, 4, 8 (one host), 16, 32, 64, 128, 256; 4 chips a host
#
# One process a node trains on all its chips or GPUs. On TPUs JAX finds the processes by what GKE tells each pod; on GPUs
# they meet at the first pod, by the name that the JobSet's headless service gives it. All write to one workdir, so one of
# --gcs-bucket, --pvc and --nfs is needed. NFS and a claim on a file system are the safer choice; a bucket should have a
# hierarchical namespace, because checkpoints are finished by renaming a folder. None of them is needed when the workdir
# is an address such as gs://BUCKET/runs/hlm: each pod then works on its own disk, and process 0 copies to the bucket.
#
# SIGTERM to a pod (a drained node, a preemption) makes all processes save after the same step and end with status 143.
# The JobSet then starts all pods again, as often as that happens, and the training goes on. After a crash, or the loss
# of a node, it does so --restarts times, from the last checkpoint. Spot nodes of GKE end pods 15 seconds after the
# signal, whatever --grace-seconds says; when that is too short to save, it is a crash: raise --restarts, and lower
# train.checkpoint_every.
#
# gcluster makes a JobSet of its own, which counts interruptions as restarts, too: give it a larger --restarts.
# `gcluster job submit` takes no --nfs and names of at most 28 characters, and needs --cluster and --location.
#
# Needs: kubectl, and JobSet in the cluster (https://jobset.sigs.k8s.io); for --gcs-bucket the driver of GKE.

set -euo pipefail

readonly PORT=8476    # of process 0, where the processes on GPUs meet
readonly STOPPED=143  # exit status of a training that a signal stopped: 128 + SIGTERM
readonly USER_ID=1000 # of the image's user

# shellcheck source=launch/shared.sh
source "$(dirname "${BASH_SOURCE[0]}")/shared.sh"

# Quotes a text for YAML.
text() { printf "'%s'" "${1//\'/\'\'}"; }

# ---------------------------------------------------------------------------------------------------------------------
# Arguments

action="" name="" namespace="" image="" accelerator="" topology="" nodes="" gpus="" gpu_type="" spot=false config=""
workdir="" bucket="" pvc="" nfs="" mount=/mnt/charlm account="" queue="" restarts=3 grace=600 worker="" cluster=""
location="" project="" dry_run=false overrides=()
for argument in "$@"; do
  value=${argument#*=}
  case $argument in
    submit | manifest | status | logs | delete | gcluster)
      [[ -z $action ]] || die "two commands: $action and $argument"
      action=$argument
      ;;
    --name=?*) name=$value ;;
    --namespace=?*) namespace=$value ;;
    --image=?*) image=$value ;;
    --accelerator-type=?*) accelerator=$value ;;
    --topology=?*) topology=$value ;;
    --nodes=?*) nodes=$value ;;
    --gpus-per-node=?*) gpus=$value ;;
    --gpu-type=?*) gpu_type=$value ;;
    --spot) spot=true ;;
    --config=?*) config=$value ;;
    --config.?*=*) overrides+=("$argument") ;;
    --workdir=?*) workdir=$value ;;
    --gcs-bucket=?*) bucket=${value#gs://} ;;
    --pvc=?*) pvc=$value ;;
    --nfs=?*) nfs=$value ;;
    --mount=?*) mount=${value%/} ;;
    --service-account=?*) account=$value ;;
    --queue=?*) queue=$value ;;
    --restarts=?*) restarts=$value ;;
    --grace-seconds=?*) grace=$value ;;
    --worker=?*) worker=$value ;;
    --cluster=?*) cluster=$value ;;
    --location=?*) location=$value ;;
    --project=?*) project=$value ;;
    --dry-run) dry_run=true ;;
    -h | --help) usage && exit 0 ;;
    *) die "unexpected argument '$argument' (options are written --name=value); --help lists commands and options" ;;
  esac
  [[ $argument != *[$'\n\r\t']* ]] || die "$(printf '%q' "$argument"): line breaks and tabs cannot be handed on"
done

# Sets `hosts`, the chips of each (`devices`), `topology`, and the name that GKE has for the kind of TPU (`kind`).
check_accelerator() {
  local size=${accelerator#*-} chips usual="" sides
  case $accelerator in
    v4-*) kind=tpu-v4-podslice ;;
    v5litepod-*) kind=tpu-v5-lite-podslice ;;
    v5p-*) kind=tpu-v5p-slice ;;
    v6e-*) kind=tpu-v6e-slice ;;
    *) die "--accelerator-type=$accelerator is not known; expected for example v4-8, v5litepod-8, v5p-8 or v6e-8" ;;
  esac
  case $accelerator in
    v4-* | v5p-*)
      [[ $size =~ ^(8|16|32|64)$ ]] || { [[ $size =~ ^[1-9][0-9]{2,4}$ ]] && ((size % 128 == 0 && size <= 12288)); } ||
        die "--accelerator-type=$accelerator: sizes of ${accelerator%%-*} are 8, 16, 32, 64 and multiples of 128 up to 12288"
      chips=$((size / 2))
      case $chips in
        4) usual=2x2x1 ;; 8) usual=2x2x2 ;; 16) usual=2x2x4 ;; 32) usual=2x4x4 ;; 64) usual=4x4x4 ;;
        128) usual=4x4x8 ;; 256) usual=4x8x8 ;; 512) usual=8x8x8 ;; 1024) usual=8x8x16 ;; 2048) usual=8x16x16 ;;
      esac
      sides='^[1-9][0-9]*x[1-9][0-9]*x[1-9][0-9]*$'
      if ((chips == 4)); then devices=4; fi
      ;;
    *)
      case $size in
        1) usual=1x1 ;; 4) usual=2x2 ;; 8) usual=2x4 ;; 16) usual=4x4 ;; 32) usual=4x8 ;; 64) usual=8x8 ;;
        128) usual=8x16 ;; 256) usual=16x16 ;;
        *) die "--accelerator-type=$accelerator: sizes of ${accelerator%%-*} are 1, 4, 8, 16, 32, 64, 128 and 256" ;;
      esac
      chips=$size sides='^[1-9][0-9]*x[1-9][0-9]*$'
      if ((chips <= 8)); then devices=$chips; fi
      ;;
  esac
  devices=${devices:-4} hosts=$((chips / ${devices:-4}))
  topology=${topology:-$usual}
  [[ -n $topology ]] || die "--accelerator-type=$accelerator comes in several shapes; give --topology=AxBxC with $chips chips"
  { [[ $topology =~ $sides ]] && ((${topology//x/*} == chips)) && [[ $sides == *x*x* || $topology == "$usual" ]]; } ||
    die "--topology=$topology is no shape of the $chips chips of $accelerator; for example ${usual:-AxBxC}"
}

# Sets `hosts` and, for TPUs, what `check_accelerator` sets.
check_hardware() {
  kind="" devices=""
  if [[ -n $accelerator ]]; then
    [[ -z $nodes$gpus$gpu_type ]] || die "--accelerator-type is a TPU slice; --nodes, --gpus-per-node and --gpu-type are for GPUs"
    check_accelerator
    return
  fi
  [[ -n $gpus ]] || die "give the hardware: --accelerator-type=TYPE (TPU), or --gpus-per-node=N and --nodes=N"
  [[ -z $topology ]] || die "--topology belongs to --accelerator-type"
  check_number --gpus-per-node "$gpus"
  check_number --nodes "${nodes:=1}"
  ((gpus > 0 && nodes > 0)) || die "--nodes=$nodes --gpus-per-node=$gpus: expected at least 1"
  hosts=$nodes devices=$gpus
}

check_training() {
  local given=0 one
  [[ -n $image ]] || die "--image is missing; launch/Dockerfile makes one"
  [[ -n $config ]] || die "--config is missing; for example --config=configs/hlm_base.py"
  [[ $config != /* && -f ${config%%:*} ]] || die "--config: no file ${config%%:*} in this repository, so none in the image"
  check_number --restarts "$restarts"
  check_number --grace-seconds "$grace"
  for one in "$bucket" "$pvc" "$nfs"; do [[ -z $one ]] || given=$((given + 1)); done
  ((given < 2)) || die "--gcs-bucket, --pvc and --nfs exclude each other"
  [[ -z $nfs || $nfs == ?*:/* ]] || die "--nfs=$nfs: expected HOST:/EXPORT"
  [[ $mount == /?* ]] || die "--mount=$mount must be an absolute path"
  workdir=${workdir:-runs/$name} mounted=true
  case $workdir in
    gs://?*/?* | s3://?*/?*)
      ((given == 1)) || mounted=false
      return
      ;;
    [A-Za-z]*:/* | gs:* | s3:*) die "--workdir=$workdir is no address that charlm writes: expected a folder, gs://BUCKET/PATH or s3://BUCKET/PATH" ;;
  esac
  ((given == 1)) || die "a pod's own files are gone with it: give --gcs-bucket, --pvc or --nfs"
  [[ /$workdir/ != */../* ]] || die "--workdir=$workdir: a path with .. may lie outside the mounted folder $mount"
  case $workdir in
    "$mount"/*) ;;
    /*) die "--workdir=$workdir lies outside the mounted folder $mount; give a relative one" ;;
    *) workdir=$mount/$workdir ;;
  esac
}

cd "$(dirname "${BASH_SOURCE[0]}")/.."
[[ -n $action ]] || die "no command; expected submit, manifest, status, logs, delete or gcluster (--help explains them)"
[[ -n $name ]] || die "--name is missing"
[[ $name =~ ^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$ ]] || die "--name=$name: expected at most 40 lower-case letters, digits and hyphens"
[[ -z $worker || $action == logs ]] || die "--worker belongs to logs"
check_number --worker "${worker:=0}"
case $action in submit | manifest | gcluster) check_hardware && check_training ;; esac
if [[ $action == gcluster ]]; then
  [[ -n $cluster && -n $location ]] || die "--cluster and --location are missing: where gcluster submits to"
  ((${#name} <= 28)) || die "--name=$name: gcluster takes at most 28 characters"
  [[ -z $nfs ]] || die "gcluster mounts no --nfs; give --pvc or --gcs-bucket"
  [[ -n $accelerator || -n $gpu_type ]] || die "--gpu-type is missing: gcluster finds the nodes by it"
elif [[ -n $cluster$location$project ]]; then
  die "--cluster, --location and --project belong to gcluster; kubectl has a context"
fi

# ---------------------------------------------------------------------------------------------------------------------
# The training in one pod. Sets `training`, and `numbered` if it needs --process=N besides, with the number of the pod.

set_training() {
  local group=$1
  training=("--config=$config" "--workdir=$workdir" ${overrides[@]+"${overrides[@]}"} "--status_if_stopped=$STOPPED")
  numbered=false
  ((hosts > 1)) || return 0
  training+=(--multihost)
  [[ -n $gpus ]] || return 0
  training+=("--coordinator=$name-$group-0-0.$name:$PORT" "--processes=$hosts")
  numbered=true
}

# ---------------------------------------------------------------------------------------------------------------------
# The manifest

readonly GROUP=workers

# Prints an argument for YAML; Kubernetes would replace $(NAME) in it.
argument() { text "${1//\$(/\$\$(}"; }

volume() {
  local options=implicit-dirs,rename-dir-limit=100000
  if [[ -n $bucket ]]; then
    [[ -z $gpus ]] || options+=",uid=$USER_ID,gid=$USER_ID"
    # What one host writes the others must see at once, so nothing of it may be cached.
    ((hosts == 1)) || options+=",metadata-cache:ttl-secs:0,metadata-cache:negative-ttl-secs:0"
    cat <<END
                csi:
                  driver: gcsfuse.csi.storage.gke.io
                  volumeAttributes:
                    bucketName: $(text "$bucket")
                    mountOptions: $options
END
  elif [[ -n $pvc ]]; then
    cat <<END
                persistentVolumeClaim:
                  claimName: $(text "$pvc")
END
  else
    cat <<END
                nfs:
                  server: $(text "${nfs%%:*}")
                  path: $(text "${nfs#*:}")
END
  fi
}

manifest() {
  local word
  set_training "$GROUP"
  cat <<END
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: $name
END
  [[ -z $namespace ]] || echo "  namespace: $(text "$namespace")"
  [[ -z $queue ]] || printf '  labels:\n    kueue.x-k8s.io/queue-name: %s\n' "$(text "$queue")"
  if [[ -n $kind ]] && ((hosts > 1)); then
    printf '  annotations:\n    alpha.jobset.sigs.k8s.io/exclusive-topology: cloud.google.com/gke-nodepool\n'
  fi
  cat <<END
spec:
  network:
    enableDNSHostnames: true
    publishNotReadyAddresses: true
    subdomain: $name
  failurePolicy:
    maxRestarts: $restarts
    rules:
      - name: interrupted
        action: RestartJobSetAndIgnoreMaxRestarts
        onJobFailureReasons: [PodFailurePolicy]
  replicatedJobs:
    - name: $GROUP
      replicas: 1
      template:
        spec:
          completionMode: Indexed
          parallelism: $hosts
          completions: $hosts
          backoffLimit: 0
          podFailurePolicy:
            rules:
              - action: FailJob
                onExitCodes:
                  containerName: charlm
                  operator: In
                  values: [$STOPPED]
              - action: FailJob
                onPodConditions:
                  - type: DisruptionTarget
                    status: "True"
          template:
END
  [[ -z $bucket ]] || printf '            metadata:\n              annotations:\n                gke-gcsfuse/volumes: "true"\n'
  cat <<END
            spec:
              restartPolicy: Never
              terminationGracePeriodSeconds: $grace
END
  [[ -z $account ]] || echo "              serviceAccountName: $(text "$account")"
  if [[ -n $kind ]]; then
    cat <<END
              securityContext:
                runAsUser: 0  # the devices of a TPU belong to root
END
  else
    cat <<END
              securityContext:
                runAsNonRoot: true
                runAsUser: $USER_ID
                runAsGroup: $USER_ID
                fsGroup: $USER_ID
                fsGroupChangePolicy: OnRootMismatch
END
  fi
  if [[ -n $kind$gpu_type ]] || $spot; then echo "              nodeSelector:"; fi
  if [[ -n $kind ]]; then
    echo "                cloud.google.com/gke-tpu-accelerator: $kind"
    echo "                cloud.google.com/gke-tpu-topology: $topology"
  fi
  [[ -z $gpu_type ]] || echo "                cloud.google.com/gke-accelerator: $(text "$gpu_type")"
  if $spot; then
    cat <<END
                cloud.google.com/gke-spot: "true"
              tolerations:
                - key: cloud.google.com/gke-spot
                  operator: Equal
                  value: "true"
                  effect: NoSchedule
END
  fi
  cat <<END
              containers:
                - name: charlm
                  image: $(text "$image")
                  args:
END
  for word in "${training[@]}"; do echo "                    - $(argument "$word")"; done
  if $numbered; then echo "                    - --process=\$(CHARLM_PROCESS)"; fi
  cat <<END
                  env:
                    - name: JAX_PLATFORMS  # fail where the accelerator is not found, in place of training on the CPU
                      value: ${kind:+tpu}${gpus:+cuda},cpu
END
  if $numbered; then
    cat <<END
                    - name: CHARLM_PROCESS
                      valueFrom:
                        fieldRef:
                          fieldPath: metadata.annotations['batch.kubernetes.io/job-completion-index']
                  ports:
                    - containerPort: $PORT
END
  fi
  cat <<END
                  securityContext:
                    allowPrivilegeEscalation: false
                  resources:
                    limits:
                      ${kind:+google.com/tpu}${gpus:+nvidia.com/gpu}: $devices
END
  $mounted || [[ -n $gpus ]] || return 0
  echo "                  volumeMounts:"
  if $mounted; then
    printf '                    - name: shared\n                      mountPath: %s\n' "$(text "$mount")"
  fi
  [[ -z $gpus ]] || printf '                    - name: memory  # NCCL exchanges data there\n                      mountPath: /dev/shm\n'
  echo "              volumes:"
  if $mounted; then
    echo "                - name: shared"
    volume | sed 's/^/  /'
  fi
  [[ -z $gpus ]] || printf '                - name: memory\n                  emptyDir:\n                    medium: Memory\n'
}

# ---------------------------------------------------------------------------------------------------------------------
# Commands

# Sets `command`: gcluster runs its --command in bash, in pods of a job that it names main-job.
set_gcluster() {
  local type line
  set_training main-job
  line=$(quote exec dumb-init -- python -m charlm.main "${training[@]}")
  # shellcheck disable=SC2016 # the pod's bash replaces it
  if $numbered; then line+=' --process=$JOB_COMPLETION_INDEX'; fi
  if [[ -n $kind ]]; then
    type=$accelerator
    [[ $accelerator != v5p-* ]] || type=v5p-$((devices * hosts)) # gcluster counts chips there
  else
    type=${gpu_type#nvidia-}
    type=${type/#tesla-a100/a100-40gb}-$gpus
  fi
  command=(gcluster job submit "--cluster=$cluster" "--location=$location")
  [[ -z $project ]] || command+=("--project=$project")
  [[ -z $namespace ]] || command+=("--gke-namespace=$namespace")
  command+=("--name=$name" "--image=$image" "--compute-type=$type")
  if [[ -n $kind ]]; then command+=("--topology=$topology"); else command+=("--num-nodes=$hosts"); fi
  if $mounted; then command+=("--mount=${bucket:+gs://}$bucket$pvc:$mount:rw"); fi
  command+=("--restarts=$restarts" "--grace-period=${grace}s")
  [[ -z $account ]] || command+=("--service-account=$account")
  [[ -z $queue ]] || command+=("--queue=$queue")
  if $spot; then command+=(--gke-nap-provisioning=spot); fi
  command+=("--command=$line")
}

run() {
  if $dry_run; then printf '%s\n' "$(quote "$@")" && return; fi
  command -v "$1" >/dev/null || die "$1 is not installed; --dry-run works without it" 1
  "$@"
}

kubectl=(kubectl ${namespace:+"--namespace=$namespace"})
pods=jobset.sigs.k8s.io/jobset-name=$name
case $action in
  manifest) manifest ;;
  submit)
    if $dry_run; then
      printf "%s <<'END'\n%s\nEND\n" "$(quote "${kubectl[@]}" apply --filename=-)" "$(manifest)"
    else
      run "${kubectl[@]}" apply --filename=- <<<"$(manifest)"
    fi
    ;;
  status)
    run "${kubectl[@]}" get jobset "$name"
    run "${kubectl[@]}" get pods "--selector=$pods" --output=wide
    ;;
  logs)
    run "${kubectl[@]}" logs --follow --tail=100 --container=charlm \
      "--selector=$pods,batch.kubernetes.io/job-completion-index=$worker"
    ;;
  delete) run "${kubectl[@]}" delete jobset "$name" --cascade=foreground --ignore-not-found ;;
  gcluster)
    set_gcluster
    run "${command[@]}"
    ;;
esac
