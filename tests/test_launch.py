"""The launchers, up to the programs that submit: sbatch, srun, kubectl and gcloud are stand-ins."""

import hashlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from launch import lint
from launch.tpu import __main__ as tpu

REPO = Path(__file__).parents[1]
# What a shell, YAML and Kubernetes would each make something else of.
NASTY = ["a b", "it's", '"x"', "$(date)", "$HOME", "`id`", "*", "a\nb", "# no", "$$(HOME)", "é: {"]
FIELD = f"--config.init.source={' '.join(NASTY)}"
GPUS = ["--image=i", "--accelerator=nvidia-h100-80gb", "--chips-per-node=8"]
TPU = ["--zone=z", "--accelerator-type=v5litepod-16", "--runtime-version=v2"]


def launch(
    launcher: str, *options: str, workdir: str = "/scratch/a run", **variables: str
) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", f"launch.{launcher}", "--config=configs/demo.py:mlm", FIELD]
        + [f"--workdir={workdir}", *options],
        cwd=REPO,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
    )


def train(workdir: str) -> list[str]:
    """What must arrive at the far end of every launcher, word by word."""
    words = ["--config=configs/demo.py:mlm", FIELD, f"--workdir={workdir}"]
    return ["-m", "cpt_jax.main", *words]


def stand_in(folder: Path, name: str, body: str) -> None:
    """Writes a program of this name that notes its arguments in NAME.json, a line per call."""
    program = folder / name
    note = (
        "import json, sys; "
        f"open({str(folder / (name + '.json'))!r}, 'a').write(json.dumps(sys.argv[1:]) + '\\n')"
    )
    program.write_text(
        f'#!/bin/bash\n{shlex.quote(sys.executable)} -c {shlex.quote(note)} "$@"\n{body}\n'
    )
    program.chmod(0o755)


def calls(folder: Path, name: str) -> list[list[str]]:
    file = folder / f"{name}.json"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_scripts_and_manifests_are_sound():
    assert not list(lint.faults())
    assert len(lint.SCRIPTS) >= 3


@pytest.mark.parametrize(
    ("script", "fault"),
    [("for f in $(ls *.x); do rm $f; done", "SC2086"), ("if true; then echo x", "SC1073")],
)
def test_a_broken_script_is_found(script, fault):
    whole = (REPO / "launch/slurm/run.sbatch").read_text()
    assert not lint.shell_faults(whole, "run.sbatch")
    assert any(fault in line for line in lint.shell_faults(f"{whole}\n{script}\n", "run.sbatch"))


@pytest.mark.parametrize(
    ("at", "value", "where"),
    [
        (("kind",), "Jobset", "$.kind"),
        (("spec", "failurePolicy", "maxRestart"), 3, "maxRestart"),
        (("spec", "failurePolicy", "rules", 0, "action"), "Fail", "action"),
        (("spec", "replicatedJobs", 0, "template", "spec", "backofLimit"), 0, "backofLimit"),
        (("spec", "replicatedJobs", 0, "template", "spec", "parallelism"), "2", "parallelism"),
    ],
)
def test_a_broken_manifest_is_found(at, value, where):
    jobset = yaml.safe_load((REPO / "launch/gke/jobset.yaml").read_text())
    assert not lint.jobset_faults(jobset, "jobset.yaml")
    part = jobset
    for key in at[:-1]:
        part = part[key]
    part[at[-1]] = value
    (fault,) = lint.jobset_faults(jobset, "jobset.yaml")
    assert where in fault


@pytest.mark.parametrize(
    ("launcher", "options", "said"),
    [
        ("slurm", ["--node=4"], "node"),
        ("slurm", ["--nodes=0"], "expected 1 or more"),
        ("slurm", ["--time=1 day"], "DAYS-H:M:S"),
        ("slurm", ["--config.sed=1"], "config.sed"),
        ("slurm", ["--workdir=s3://bucket/run"], "gs://BUCKET/RUN"),
        ("gke", [*GPUS, "--secret=WANDB_API_KEY=hunter2"], "VARIABLE=SECRET:KEY"),
        ("gke", GPUS, "it would be lost with the machine"),
        ("gke", [*GPUS, "--volume=claim:/scratch/b"], "below /scratch/b"),
        ("gke", [*GPUS, "--volume=claim:/scratch", "--topology=4x5x1", "--nodes=2"], "20 chips"),
        ("gke", [*GPUS, "--volume=claim:/scratch", "--topology=4x4", "--nodes=3"], "is 2"),
        ("gke", [*GPUS, "--name=Run_1"], "expected up to 40"),
        ("tpu", TPU, "it would be lost with the machine"),
        ("tpu", [*TPU, "--mount=/scratch", "--secret=WANDB_API_KEY=hunter.2"], "VARIABLE=SECRET"),
    ],
)
def test_refused_before_anything_is_submitted(tmp_path, launcher, options, said):
    for program in ("sbatch", "kubectl", "gcloud"):
        stand_in(tmp_path, program, "exit 0")
    done = launch(launcher, *options, PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert "hunter" not in done.stdout + done.stderr  # what may be the secret itself
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("*.json"))


def test_slurm_submits_what_its_dry_run_prints(tmp_path):
    stand_in(tmp_path, "sbatch", "exit 7")
    options = ["--nodes=4", "--time=2-0", "--grace=120", "--sbatch=--partition=a b", "--python=p y"]
    options.append("--compilation-cache=/c d")
    path = f"{tmp_path}:{os.environ['PATH']}"
    printed = launch("slurm", *options, "--dry-run", PATH=path, WANDB_API_KEY="hunter2")
    assert printed.returncode == 0, printed.stderr
    assert "hunter2" not in printed.stdout
    assert not calls(tmp_path, "sbatch")
    assert launch("slurm", *options, PATH=path).returncode == 7  # sbatch's own
    (submitted,) = calls(tmp_path, "sbatch")
    assert ["sbatch", *submitted] == shlex.split(printed.stdout)
    script = submitted.index(str(REPO / "launch/slurm/run.sbatch"))
    expected = ["env", "JAX_COMPILATION_CACHE_DIR=/c d", "p y", *train("/scratch/a run")]
    assert submitted[script + 1 :] == expected
    assert {"--nodes=4", "--ntasks-per-node=8", "--signal=TERM@120"} <= set(submitted[:script])
    assert {"--time=2-0", "--partition=a b", "--gpus-per-node=8"} <= set(submitted[:script])


@pytest.mark.parametrize(("code", "again"), [(0, 0), (1, 0), (2, 0), (3, 0), (137, 0), (143, 1)])
def test_slurm_requeues_what_was_stopped_and_saved(tmp_path, code, again):
    stand_in(tmp_path, "srun", f"exit {code}")
    stand_in(tmp_path, "scontrol", "exit 1")  # a site that allows none must not hide the code
    done = subprocess.run(
        ["bash", REPO / "launch/slurm/run.sbatch", "python", *NASTY],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_ID": "5", "SLURM_CPUS_PER_TASK": "6"},
        capture_output=True,
    )
    assert done.returncode == code
    assert calls(tmp_path, "scontrol") == [["requeue", "5"]] * again
    (words,) = calls(tmp_path, "srun")
    assert words[words.index("--") + 1 :] == ["python", *NASTY]
    assert "--cpus-per-task=6" in words


def test_slurm_does_not_requeue_what_was_cancelled(tmp_path):
    """``scancel`` sends SIGTERM to the script as well, which must not outlive it."""
    stand_in(tmp_path, "srun", f"touch {tmp_path}/running; sleep 1; exit 143")
    stand_in(tmp_path, "scontrol", "")
    process = subprocess.Popen(
        ["bash", REPO / "launch/slurm/run.sbatch", "python"],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_ID": "5"},
    )
    while not (tmp_path / "running").exists():
        assert process.poll() is None
    process.terminate()
    assert process.wait(timeout=30) == -15
    assert not calls(tmp_path, "scontrol")


def expanded(word: str) -> str:
    """A word of a container's command as Kubernetes documents it: $(NAME), and $$ for a $."""
    known = {"HOME": "/root"}

    def value(found: re.Match) -> str:
        return "$" if found[0] == "$$" else known.get(found[1], str(found[0]))

    return re.sub(r"\$\$|\$\((\w+)\)", value, word)


@pytest.mark.parametrize("dry_run", [True, False])
def test_gke_submits_a_jobset(tmp_path, dry_run):
    stand_in(tmp_path, "kubectl", f"cat > {tmp_path}/submitted")
    done = launch(
        "gke",
        *(*GPUS, "--nodes=4", "--volume=claim:/scratch", "--name=fr-large", "--grace=90"),
        *("--secret=WANDB_API_KEY=wandb:key", "--max-restarts=9"),
        *["--dry-run"] * dry_run,
        PATH=f"{tmp_path}:{os.environ['PATH']}",
        WANDB_API_KEY="hunter2",
    )
    assert done.returncode == 0, done.stderr
    text = done.stdout if dry_run else (tmp_path / "submitted").read_text()
    assert calls(tmp_path, "kubectl") == [["create", "-f", "-"]] * (not dry_run)
    assert "hunter2" not in text
    jobset = yaml.safe_load(text)
    assert jobset["metadata"]["name"] == "fr-large"
    assert jobset["spec"]["failurePolicy"]["maxRestarts"] == 9
    (job,) = jobset["spec"]["replicatedJobs"]
    assert job["template"]["spec"]["parallelism"] == job["template"]["spec"]["completions"] == 4
    pod = job["template"]["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] == 90
    (container,) = pod["containers"]
    assert [expanded(word) for word in container["command"]] == ["python", *train("/scratch/a run")]
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 8}}
    variables = {v["name"]: v.get("value", v.get("valueFrom")) for v in container["env"]}
    assert variables["JAX_COORDINATOR_ADDRESS"] == "fr-large-workers-0-0.fr-large:8476"
    assert variables["JAX_NUM_PROCESSES"] == "4"
    assert variables["WANDB_API_KEY"] == {"secretKeyRef": {"name": "wandb", "key": "key"}}
    assert {"name": "volume-0", "mountPath": "/scratch"} in container["volumeMounts"]


def test_gke_takes_the_nodes_of_a_tpu_slice_from_its_topology(tmp_path):
    options = ["--image=i", "--accelerator=tpu-v5-lite-podslice", "--topology=4x4", "--dry-run"]
    done = launch("gke", *options, "--chips-per-node=4", workdir="gs://bucket/run")
    assert done.returncode == 0, done.stderr
    job = yaml.safe_load(done.stdout)["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert job["parallelism"] == job["completions"] == 4
    pod = job["template"]["spec"]
    assert pod["containers"][0]["resources"] == {"limits": {"google.com/tpu": 4}}
    assert not pod["containers"][0]["env"]  # GKE's own variables say who is who
    assert pod["nodeSelector"]["cloud.google.com/gke-tpu-topology"] == "4x4"


GCLOUD = """
home={home}; export HOME=$home
case "$*" in
  *" create "*) (($(grep -c '"create"' $home/gcloud.json) < 3)) ;;
  *" describe "*) state=$(head -n 1 $home/states); sed -i 1d $home/states
    [[ -n $state ]] || exit 1; echo "$state" ;;
  *" scp "*) for file in "$@"; do [[ -f $file ]] && cp "$file" $home; done
    sum=$(sha256sum $home/cpt_jax.tar.gz | cut -c -12)
    mkdir -p $home/cpt_jax-$sum; touch $home/cpt_jax-$sum/.installed ;;
  *" ssh "*) for word in "$@"; do [[ $word == --command=* ]] && command="${{word#--command=}}"; done
    cd $home; bash -c "$command" ;;
  *" versions access "*) echo "the secret" ;;
esac
"""


@pytest.mark.parametrize(
    ("states", "codes", "ends", "created", "deleted"),
    [
        # nothing there, queued, active: trains to the end
        (["", "WAITING_FOR_RESOURCES", "ACTIVE", "ACTIVE"], [0], 0, 1, 0),
        # preempted while it trains, and again there and then; the slice of an earlier command first
        (["ACTIVE", "SUSPENDED", "SUSPENDED", "", "ACTIVE", "ACTIVE"], [143, 0], 0, 1, 1),
        # told to stop where it is: saved, and goes on
        (["ACTIVE", "ACTIVE", "ACTIVE", "ACTIVE"], [143, 0], 0, 0, 0),
        (["ACTIVE", "ACTIVE"], [2], 2, 0, 0),  # refused: no restart mends that
        (["ACTIVE", "ACTIVE"], [1], 1, 0, 0),
    ],
)
def test_tpu_goes_on_until_the_run_has_ended(
    tmp_path, monkeypatch, states, codes, ends, created, deleted
):
    stand_in(tmp_path, "gcloud", GCLOUD.format(home=tmp_path))
    (tmp_path / "states").write_text("\n".join(states) + "\n")
    (tmp_path / "codes").write_text("\n".join(map(str, codes)) + "\n")
    body = f"printenv KEY > {tmp_path}/key; code=$(head -n 1 {tmp_path}/codes)\n"
    stand_in(tmp_path, "train", f"{body}sed -i 1d {tmp_path}/codes; exit $code")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    arguments = [*TPU, "--name=run"]
    slice_ = tpu.Slice(tpu._parser().parse_args(arguments))
    assert tpu.train(slice_, ["train", *NASTY], ["KEY=wandb"], poll=0) == ends
    assert calls(tmp_path, "train") == [NASTY] * len(codes)
    assert (tmp_path / "key").read_text() == "the secret\n"
    verbs = [words[3] for words in calls(tmp_path, "gcloud") if words[2] == "queued-resources"]
    assert (verbs.count("create"), verbs.count("delete")) == (created, deleted)
    assert "the secret" not in (tmp_path / "gcloud.json").read_text()


def test_tpu_worker_lets_its_command_save(tmp_path):
    """SIGTERM and a lost connection reach the command, whose own exit code is kept."""
    (tmp_path / "code").write_text("x")
    home = tmp_path / f"cpt_jax-{hashlib.sha256(b'x').hexdigest()[:12]}"
    home.mkdir()
    (home / ".installed").touch()
    saves = """import signal, sys, time
def save(*_):
    signal.signal(15, signal.SIG_DFL)
    print("TERM", flush=True)
    time.sleep(0.5)
    sys.exit("saved")
signal.signal(15, save)
print("ready", flush=True)
time.sleep(60)"""
    # As under ssh; bash cannot trap what was ignored before it began, as under nohup.
    heard = (
        "import os, signal, sys; signal.signal(1, signal.SIG_DFL); os.execvp('bash', sys.argv[1:])"
    )
    worker = [REPO / "launch/tpu/worker.sh", "code", "--", sys.executable, "-c", saves]
    command = [sys.executable, "-c", heard, "bash", *worker]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path)},
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.stdout.close()  # the connection is gone
    process.send_signal(signal.SIGHUP)
    while "TERM" not in (tmp_path / "cpt_jax.log").read_text():
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)  # the machine shuts down: no second one for the command
    assert process.wait(timeout=30) == 1  # sys.exit's, with a message
    assert (tmp_path / "cpt_jax.status").read_text() == "1\n"
    assert (tmp_path / "cpt_jax.log").read_text() == "ready\nTERM\nsaved\n"


def test_tpu_worker_says_what_fails_before_its_command(tmp_path):
    """Without a status the launcher would take another slice, and fail there again, for ever."""
    (tmp_path / "code").write_text("x")
    home = tmp_path / f"cpt_jax-{hashlib.sha256(b'x').hexdigest()[:12]}"
    home.mkdir()
    (home / ".installed").touch()
    (tmp_path / "gcloud").write_text("#!/bin/sh\nexit 4\n")
    (tmp_path / "gcloud").chmod(0o755)
    command = ["bash", REPO / "launch/tpu/worker.sh", "code", "KEY=secret", "--", "true"]
    environment = os.environ | {"HOME": str(tmp_path), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    assert subprocess.run(command, cwd=tmp_path, env=environment).returncode == 4
    assert (tmp_path / "cpt_jax.status").read_text() == "1\n"


def test_tpu_dry_run_quotes_for_the_shell_at_the_other_end():
    options = ["--dry-run", "--secret=KEY=wandb", "--project=p"]
    done = launch("tpu", *TPU, *options, workdir="gs://bucket/a run")
    assert done.returncode == 0, done.stderr
    steps = [shlex.split(line) for line in re.split(r"\n(?=gcloud|git)", done.stdout.strip())]
    assert [step[4] for step in steps if step[0] == "gcloud"] == [
        *("create", "describe", "scp", "ssh", "delete"),
    ]
    (command,) = [w.removeprefix("--command=") for w in steps[4] if w.startswith("--command=")]
    worker = ["bash", "worker.sh", "cpt_jax.tar.gz", "KEY=wandb", "--", "python"]
    assert shlex.split(command) == [*worker, *train("gs://bucket/a run")]
