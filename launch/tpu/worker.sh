#!/bin/bash
# What every worker of a TPU slice does, called by `python -m launch.tpu` over ssh:
#
#   worker.sh CODE.tar.gz [NAME=SECRET ...] -- COMMAND ...
#
# Unpacks the code (once for each archive), makes its environment, takes each NAME from the Secret
# Manager, runs COMMAND there, and leaves its exit status in ~/cpt_jax.status, as gcloud's own does
# not tell it. Signals and a broken connection end the command; it saves on SIGTERM.
set -euo pipefail

# One at a time: after a broken connection the one before may still be saving. Its command holds
# the lock as well.
exec 9>"$HOME/cpt_jax.lock"
flock 9
status="$HOME/cpt_jax.status"
rm -f "$status"
trap 'echo 1 >"$status"' ERR # what fails before COMMAND would fail again on another slice
code=$1
shift
home="$HOME/cpt_jax-$(sha256sum "$code" | cut -c -12)"
if [[ ! -e $home/.installed ]]; then
  rm -rf "$home"
  mkdir -p "$home"
  tar -xzf "$code" -C "$home"
  python3 -m venv "$home/.venv"
  "$home/.venv/bin/pip" install -q -e "${home}[tpu,gs]" -c "$home/constraints.txt"
  touch "$home/.installed"
fi
while [[ $1 != -- ]]; do
  value=$(gcloud secrets versions access latest --secret="${1#*=}")
  export "${1%%=*}=$value"
  shift
done
shift
cd "$home"
export PATH="$home/.venv/bin:$PATH"

trap - ERR
# tee goes on writing the log when the connection is gone, so that the command can, too.
"$@" > >(tee -a -i -p "$HOME/cpt_jax.log") 2>&1 &
pid=$!
# The first signal alone is passed on: at a second one the command would end without saving.
trap 'kill -TERM "$pid"; trap "" TERM HUP INT' TERM HUP INT
wait "$pid" || true # that signal ends this, and the command goes on
result=0
wait "$pid" || result=$?
echo "$result" >"$status"
exit "$result"
