#!/bin/sh
# The program `fugu`, installed beside the Python that runs it. That Python is isolated (-I): what
# PYTHONPATH, PYTHONHOME, the user's own packages and the current folder hold is never loaded into
# fugu itself. The variables stay as they are for the commands that fugu starts.
script=$0
while [ -L "$script" ]; do
    target=$(command -p readlink "$script")
    case $target in
        /*) script=$target ;;
        *) script=${script%/*}/$target ;;
    esac
done
folder=${script%/*}
# -I does not keep these from naming another Python, with its libraries
unset PYTHONEXECUTABLE __PYVENV_LAUNCHER__
if [ -x "$folder/python" ]; then
    exec "$folder/python" -I -m fugu_cli "$@"
fi
# a system's own Python installs scripts into another folder; only there the user's packages count
exec "$(command -p -v python3)" -E -P -m fugu_cli "$@"
