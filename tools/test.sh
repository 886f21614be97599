#!/bin/sh
# Set up and pass the tests. Needs Python 3.11 or newer, a C compiler and PyPI, and no earlier step.
# Arguments go to pytest. PYTHON chooses the interpreter, VENV the place of the environment, JOBS how many processes share the
# tests (else two for each processor, since many tests wait for others most of their time). Slow tests are left out: .ci/run
# and tools/check.py run them.
set -eu
cd "$(dirname "$0")/.."
venv=${VENV:-.venv}

is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    for python in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
        if is_new_enough "$python"; then break; fi
    done
    is_new_enough "$python" || {
        echo "Found no Python 3.11 or newer. PYTHON=/path/to/python $0 says where it is." >&2
        exit 1
    }
    "$python" -m venv "$venv"
fi
# The tests start some hundred Python processes, which would compile all modules each time. Images of containers often
# say so.
unset PYTHONDONTWRITEBYTECODE
echo "Building qindex in $venv ..."
# Most modules of these packages are imported by nobody: what is imported is compiled then. (PIP_NO_COMPILE=1 would do the
# opposite: pip takes the value of such a variable for that of "compile".)
export PIP_QUIET=1 PIP_DISABLE_PIP_VERSION_CHECK=1
# The core is compiled while what the tests need is fetched.
"$venv/bin/python" -m pip install --no-compile --no-deps --editable . &
built=$!
"$venv/bin/python" tools/extras.py test |
    "$venv/bin/python" -m pip install --no-compile --no-warn-conflicts --requirement /dev/stdin || exit 1
wait "$built"
# .ci/run sets as many examples of each property as Hypothesis has by itself: 100.
export QINDEX_TEST_EXAMPLES="${QINDEX_TEST_EXAMPLES:-30}"
# Each process takes files that stand together, so it makes most fixtures of a file once.
exec "$venv/bin/python" -m pytest -n "${JOBS:-$(($(nproc) * 2))}" --dist worksteal -m "not slow and not long" "$@"
