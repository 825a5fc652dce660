#!/usr/bin/env bash
# What compare_gpus.sh --hosts runs on a host, in the files that it sent: on_host.sh MARK OPTION ...
# Measures, and prints the results as an archive. A line MARK stands before either part, and once on
# stderr: what comes earlier is the login's. Stdin is the connection; when it ends, so does this.
set -euo pipefail
mark=$1 out=build/out
shift
cd -- "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."
rm -rf "$out"
mkdir -p "$out"
exec 3<&0 </dev/null
tee /dev/stderr <<<"$mark"

bash scripts/compare_gpus.sh --out "$out" "$@" 3<&- &
measuring=$!
{ read -r || kill -TERM "$measuring"; } <&3 >/dev/null 2>&1 &
watching=$!
status=0
wait "$measuring" || status=$?
kill "$watching" 2>/dev/null || true

echo "$mark"
tar -C "$out" -cf - .
exit "$status"
