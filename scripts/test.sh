#!/usr/bin/env bash
# Builds everything and runs every test.
set -euo pipefail
CDPATH="" cd -- "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/setup.sh

case ${1-} in
    -h | --help)
        cat <<'END'
Usage: scripts/test.sh [PYTEST-ARGUMENT ...]

Installs what is missing, builds the programs, the tests and the mutants (programs with a bug each),
and runs every test, on the GPU if there is one and on the CPU lane; what was skipped is listed with
its reason. Without a GPU the programs are compiled for the build's usual architectures (scons -h).
Arguments go to pytest: scripts/test.sh -k command_line -x
END
        exit
        ;;
esac

ensure_compiler
ensure_lane_libraries
ensure_scons
ensure_cuda
ensure_nvdisasm
ensure_gtest
ensure_pytest
ensure_jsonschema
ensure_matplotlib
ensure_browser
(ensure_gdb) || say "stepping through kernels is not tested, then"

if has_gpu; then
    build programs tests mutants
else
    say "no GPU here: compiling for the usual architectures, and running on the CPU lane"
    build programs
    build tests arch=90a # they cannot run here: that they compile is enough
fi
build cpu cpu/tests cpu/mutants
build cpu cpu/tests sanitize=1

# Both run, whatever the first one finds.
status=0
build/tests/host_tests --gtest_brief=1 || status=1
"${PYTEST[@]}" tests -rs "$@" || status=1
exit $status
