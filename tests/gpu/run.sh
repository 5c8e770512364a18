#!/usr/bin/env bash
# On a machine with an NVIDIA accelerator: the tests of vLLM on its CUDA build; some minutes of training of a small language
# model that vLLM samples from in the same process, with rollouts and updates one after the other and with rollouts that run
# ahead, and tokens per second by phase; rollouts per second of the prober beside those of the bare engine. After every
# update the log-probabilities of vLLM are compared with the trainer's, and a difference ends the run with an error.
#
#   tests/gpu/run.sh MODEL [STEPS]
#   DEVICE=cpu tests/gpu/run.sh [STEPS]      # the same with the small learner that is shipped and few steps, on a CPU
#
# MODEL: a folder in transformers' format with a chat template, of 0.1 to 2 billion parameters, such as a copy of
# SmolLM2-135M-Instruct. Training in float32 takes 16 bytes a parameter, 4 more for rollouts that run ahead, and vLLM 30 %
# of the accelerator's memory.
# Needs Python 3.11+ with venv, CUDA's driver, 20 GB of disk and a package index; an environment in PYTHON_ENV is taken as
# it is. `make test-engines` makes the one for a CPU.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

export VLLM_NO_USAGE_STATS=1 PYTHONUNBUFFERED=1
if [ "${DEVICE:-cuda}" = cpu ]; then
    env=${PYTHON_ENV:-.venv-engines}
    test -x "$env/bin/python" || { echo "no environment in $env: make test-engines, or PYTHON_ENV=..." >&2; exit 1; }
    export OMP_NUM_THREADS=1
    model=() steps=${1:-6}
    train=(--batch-size 16) probing=(--tickets 64 --tokens 5000)
else
    model=("${1:?usage: tests/gpu/run.sh MODEL [STEPS]}")
    steps=${2:-60}
    test -f "$1/config.json" || { echo "$1 holds no model in transformers' format" >&2; exit 1; }
    test -e /dev/nvidiactl || { echo "no accelerator: /dev/nvidiactl is not there" >&2; exit 1; }
    env=${PYTHON_ENV:-.venv-gpu}
    if [ ! -x "$env/bin/python" ]; then
        python3 -m venv "$env"
        "$env/bin/python" -m pip install --quiet -e '.[vllm,postgres]' hypothesis nvidia-ml-py pytest pytest-asyncio
    fi
    export OMP_NUM_THREADS=4
    train=(--batch-size 64) probing=()
fi

say() { echo; echo "== $*"; }

say "tests of vLLM"
"$env/bin/python" -m pytest -q tests/trainer/rollout/test_vllm.py
say "training, one after the other"
"$env/bin/python" -m tests.gpu.train "${model[@]}" --steps "$steps" "${train[@]}"
say "training, rollouts two batches ahead"
"$env/bin/python" -m tests.gpu.train "${model[@]}" --steps "$steps" --depth 2 "${train[@]}"
say "training, products and vLLM in bfloat16"
"$env/bin/python" -m tests.gpu.train "${model[@]}" --steps "$steps" --precision bfloat16 "${train[@]}"
say "probing"
"$env/bin/python" -m tests.gpu.probing "${model[@]}" "${probing[@]}"
