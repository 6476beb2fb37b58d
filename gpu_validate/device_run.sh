#!/usr/bin/env bash
# Checks, times and fits one card in one go, in under ten minutes, and writes everything under $OUT:
#
#   OUT=results bash gpu_validate/device_run.sh
#
# Needs an NVIDIA GPU (sm_80 or newer) and a Python with CuPy, NumPy, PyYAML (typer for kvplan itself); installs nothing.
# The card's settings are left as they are. Each part has a limit of its own, and a part that fails does not keep the
# next from running: the exit code is that of the first part that failed.
#
#   PYTHON=python3         the Python that has CuPy
#   MODEL=llama-3.1-8b     whose layers and steps are timed (a dense model of the catalogue)
#   PLAN=full              or small
#   CHECK="check --grid ci"    what is checked first
set -uo pipefail

cd "$(dirname "$0")/.."
OUT=${OUT:-out/gpu}
PYTHON=${PYTHON:-python3}
MODEL=${MODEL:-llama-3.1-8b}
PLAN=${PLAN:-full}
CHECK=${CHECK:-check --grid ci}
export PYTHONUNBUFFERED=1 CUPY_CACHE_DIR=${CUPY_CACHE_DIR:-/tmp/kvplan-cupy}
mkdir -p "$OUT"
start=$SECONDS
worst=0

# part NAME SECONDS COMMAND...: runs it under a limit, keeps its words, remembers the first failure.
part() {
  local name=$1 limit=$2
  shift 2
  echo "== $name (after $((SECONDS - start)) s, at most $limit s)"
  timeout --signal=INT --kill-after=10 "$limit" "$@" 2>&1 | tee "$OUT/$name.log"
  local code=${PIPESTATUS[0]}
  echo "== $name: exit code $code"
  if [ "$worst" -eq 0 ]; then worst=$code; fi
}

if command -v nvidia-smi > /dev/null; then nvidia-smi > "$OUT/nvidia-smi.txt"; fi
# shellcheck disable=SC2086  # several words
part check 200 "$PYTHON" -m gpu_validate $CHECK --out "$OUT/check.json"
part calibrate 330 "$PYTHON" -m gpu_validate calibrate --model "$MODEL" --plan "$PLAN" --limit-s 270 --out "$OUT"
part predict 30 "$PYTHON" -m gpu_validate predict --model "$MODEL" \
  --measurements "$OUT/measurements.json" --calibration "$OUT/calibration.yaml"
if [ -f "$OUT/measurements.json" ]; then  # the small files come home whole; logs in one
  cat "$OUT"/check.log "$OUT"/calibrate.log "$OUT"/predict.log > "$OUT/device_run.log"
  rm -f "$OUT"/check.log "$OUT"/calibrate.log "$OUT"/predict.log
fi
echo "== done after $((SECONDS - start)) s: $(ls "$OUT" | tr '\n' ' ')"
exit "$worst"
