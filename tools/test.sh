#!/bin/sh
# Set up and pass the tests: needs Python 3.11 or newer, a C compiler and PyPI, and no earlier step.
# Arguments go to pytest. PYTHON chooses another interpreter, VENV another place for the environment.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
venv=${VENV:-.venv}

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "qindex needs Python 3.11 or newer; $("$python" --version 2>&1) is not. Set PYTHON." >&2
    exit 1
}
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --editable '.[test]'
exec "$venv/bin/python" -m pytest "$@"
