#!/usr/bin/env bash
# On a machine with an NVIDIA accelerator: the tests of vLLM on its CUDA build, then some minutes of training of a small
# language model that vLLM samples from, and tokens per second by phase. After every update the log-probabilities of vLLM
# are compared with the trainer's, and a difference ends the run with an error.
#
#   tests/gpu/run.sh MODEL [STEPS]
#
# MODEL: a folder in transformers' format with a chat template, of 0.1 to 2 billion parameters, such as a copy of
# SmolLM2-135M-Instruct. Training in float32 takes 16 bytes a parameter, vLLM 30 % of the accelerator's memory.
# Needs Python 3.11+ with venv, CUDA's driver, 20 GB of disk and a package index; an environment in PYTHON_ENV is taken as it is.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

model=${1:?usage: tests/gpu/run.sh MODEL [STEPS]}
steps=${2:-60}
test -f "$model/config.json" || { echo "$model holds no model in transformers' format" >&2; exit 1; }
test -e /dev/nvidiactl || { echo "no accelerator: /dev/nvidiactl is not there" >&2; exit 1; }

env=${PYTHON_ENV:-.venv-gpu}
if [ ! -x "$env/bin/python" ]; then
    python3 -m venv "$env"
    "$env/bin/python" -m pip install --quiet -e '.[vllm,postgres]' hypothesis pytest pytest-asyncio
fi
export OMP_NUM_THREADS=4 VLLM_NO_USAGE_STATS=1

"$env/bin/python" -m pytest -q tests/trainer/rollout/test_vllm.py
"$env/bin/python" -m tests.gpu.train "$model" --steps "$steps"
