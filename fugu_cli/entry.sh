#!/bin/sh
# The program `fugu`, installed beside the Python that runs it. That Python is isolated (-I): what
# PYTHONPATH, PYTHONHOME, the user's own packages and the current folder hold is never loaded into
# fugu itself. The variables stay as they are for the commands that fugu starts.

# Libraries that the loader would take from the repository are not loaded either: entries that are
# relative, or lie in the repository of the current folder, are left out. programs.py gives commands
# the value that the user has set.
repository=
set -f
for name in LD_LIBRARY_PATH LD_PRELOAD LD_AUDIT GCONV_PATH DYLD_LIBRARY_PATH \
    DYLD_INSERT_LIBRARIES DYLD_FRAMEWORK_PATH DYLD_FALLBACK_LIBRARY_PATH \
    DYLD_FALLBACK_FRAMEWORK_PATH DYLD_VERSIONED_LIBRARY_PATH DYLD_VERSIONED_FRAMEWORK_PATH; do
    unset "FUGU_USERS_$name"
    eval "value=\${$name-}"
    [ -n "$value" ] || continue
    if [ -z "$repository" ]; then
        repository=$(pwd -P)
        while [ -n "$repository" ] && [ ! -e "$repository/.git" ]; do
            repository=${repository%/*}
        done
        [ -n "$repository" ] || repository=$(pwd -P)
    fi
    unset "$name"
    eval "export FUGU_USERS_$name=\$value"
    IFS=':;'
    [ "$name" != LD_PRELOAD ] || IFS=': '
    kept=
    for entry in $value; do
        case $entry in
            /*) folder=$entry ;;
            *) continue ;;
        esac
        [ -d "$folder" ] || folder=${entry%/*}
        real=$(CDPATH='' cd -P "$folder/" 2> /dev/null && pwd -P) || continue
        case $real/ in
            "$repository"/*) ;;
            *) kept=$kept${kept:+:}$entry ;;
        esac
    done
    unset IFS
    [ -z "$kept" ] || eval "export $name=\$kept"
done
set +f

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
