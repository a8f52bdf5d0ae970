#!/bin/sh
# Prints the path of a CPython that can make the environment: at least 3.12, with `venv` and `ensurepip`.
#
# Each candidate is run, not only looked up: a pyenv shim named python3.12 stands on PATH and fails when that version is
# not the selected one. Versions for which every dependency has wheels come first. An argument names the interpreter
# to take instead.
set -eu

CHECK='
import sys, sysconfig
assert sys.implementation.name == "cpython" and sys.version_info >= (3, 12)
assert not sysconfig.get_config_var("Py_GIL_DISABLED")  # few packages have wheels for the free-threaded build
import ensurepip, venv
print(sys.executable)
'

try() {
    "$1" -c "$CHECK" 2>/dev/null
}

if [ -n "${1:-}" ]; then
    try "$1" && exit 0
    echo "error: '$1' is not a CPython of version 3.12 or newer with the modules venv and ensurepip" >&2
    exit 1
fi

for name in python3.12 python3.13 python3.14 python3 python; do
    try "$name" && exit 0
done

versions="${PYENV_ROOT:-${HOME:-}/.pyenv}/versions"
for python in "$versions"/3.12*/bin/python "$versions"/3.13*/bin/python "$versions"/*/bin/python; do
    if [ -x "$python" ]; then
        try "$python" && exit 0
    fi
done

cat >&2 <<MESSAGE
error: no Python 3.12 or newer found, neither on PATH nor in $versions.
Install one with its venv module, for instance:
    Debian, Ubuntu    apt-get install python3.12 python3.12-venv
    pyenv             pyenv install 3.12
or name one that lies elsewhere:
    make venv PYTHON=/path/to/python3.12
MESSAGE
exit 1
