#!/usr/bin/env bash
# Sets up fugu: for you, for a demonstration, or for its tests. Needs Python 3.11 or newer, git and a package index; never
# root. Every mode can be interrupted and run again: what is there is kept, and a second run downloads nothing.
set -euo pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)"
[ -n "${HOME:-}" ] || { unset HOME && HOME=~ && export HOME; } # some containers set none
TORCH="2.13.0"
TORCH_INDEX="${TORCH_INDEX:-https://download.pytorch.org/whl/cpu}"
TAKES_CUDA=""
COMPILE="--compile"
SIZE="about 0.4 GB to download, 1.4 GB on disk"
USER_VENV="${XDG_DATA_HOME:-$HOME/.local/share}/fugu/venv"
REPO_VENV="$ROOT/.venv"
BIN="$HOME/.local/bin"
MODELS="qwen2.5-coder-0.5b qwen2.5-coder-1.5b"
PYTHON_ASKED="${PYTHON:-}"
VENV=""
SCRATCH=""

usage() {
    cat <<'TEXT'
usage: ./install.sh          install the command fugu for you, in ~/.local/bin
       ./install.sh demo     set everything up here and let fugu repair a small repository (needs about 3 GB)
       ./install.sh test     set up what the tests need and run every check; further words go to pytest
       ./install.sh test --fast   only what takes about a minute, without torch: ruff, and the tests that run no other
                                  program for long
       ./install.sh --help   this text

--cuda, after any of them: take PyTorch as the package index has it, which may be the build with CUDA (5 to 6 GB on disk).

Needs Python 3.11 or newer, git, and a package index; no root, no key, no account. Each can be interrupted and run again.

PYTHON              the Python to use, instead of the newest one found
FUGU_CACHE_DIR      where the models are kept (default: the user's cache folder)
FUGU_MODELS_DIR     a folder that already holds the models, for machines without a network
TORCH_INDEX         the index with PyTorch's builds for CPUs (default: PyTorch's own)
PIP_INDEX_URL, PIP_EXTRA_INDEX_URL and the rest of pip's configuration count as usual.
TEXT
}

say() { printf '%s\n' "$@"; }

fail() { # what happened, what to do next
    printf 'install.sh: %s\n' "$1" >&2
    if [ $# -gt 1 ]; then printf '            %s\n' "$2" >&2; fi
    exit 1
}

interrupted() {
    printf '\ninstall.sh: interrupted. Run the same command again: it goes on where it stopped.\n' >&2
    exit 130
}

cleared() { if [ -n "$SCRATCH" ]; then rm -rf "$SCRATCH"; fi; }

# --- what has to be there ---------------------------------------------------------------------------------------------

find_python() {
    local candidate
    for candidate in python3.14 python3.13 python3.12 python3.11 python3; do
        candidate="${PYTHON_ASKED:-$candidate}"
        # A version manager's shim may be on the PATH without a Python behind it, so each one is tried.
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            PYTHON="$candidate"
            return
        fi
    done
    local found
    found="$("${PYTHON_ASKED:-python3}" --version 2>/dev/null || echo none)"
    fail "fugu needs Python 3.11 or newer; found: $found." \
        "Install it (python.org, your package manager, pyenv or uv), or name one: PYTHON=/path/to/python ./install.sh"
}

need_git() {
    command -v git >/dev/null 2>&1 || fail "fugu works with git, and there is no git here." \
        "Install it with your package manager (Debian: apt install git; macOS: xcode-select --install)."
}

need_venv() {
    "$PYTHON" -c 'import venv, ensurepip' >/dev/null 2>&1 || fail \
        "This Python ($PYTHON) cannot make virtual environments: the module venv or ensurepip is missing." \
        "On Debian and Ubuntu it is the package python3-venv; or name another Python with PYTHON=."
}

need_space() { # folder, megabytes, what for
    local folder="$1" free
    while [ ! -d "$folder" ]; do folder="$(dirname "$folder")"; done
    free="$(df -Pk "$folder" | awk 'NR == 2 { print int($4 / 1024) }')"
    [ "$free" -ge "$2" ] || fail "Not enough space for $3: it needs about $2 MB in $1, and $free MB are free." \
        "Free some space, or set XDG_DATA_HOME and FUGU_CACHE_DIR to folders on another disk."
}

need_space_first() { [ -x "$VENV/bin/fugu" ] || need_space "$VENV" "$@"; } # an update needs next to nothing

# --- the virtual environment ------------------------------------------------------------------------------------------

wanted_stamp() { # what the environment was made from; a change of it means installing again
    "$PYTHON" - "$ROOT" "$1" <<'CODE'
import hashlib, pathlib, sys
root, extras = sys.argv[1:]
print(hashlib.sha256(pathlib.Path(root, "pyproject.toml").read_bytes()).hexdigest(), sys.version.split()[0], root, extras)
CODE
}

announce() { # lines for a first time; anything later only adds what changed
    if [ -x "$VENV/bin/fugu" ]; then
        say "Bringing fugu in $VENV up to date."
    else
        say "$@"
    fi
}

is_ready() { # extras
    [ -x "$VENV/bin/fugu" ] || return 1
    [ "$(cat "$VENV/.fugu-$1" 2>/dev/null || true)" = "$(wanted_stamp "$1")" ]
}

has_torch() { "$VENV/bin/python" -c 'import torch' >/dev/null 2>&1; } # not its metadata: that is there half installed, too

pip_install() { # runs pip; its words are kept for the one who asks why it failed
    local quiet=(--quiet)
    if [ -t 1 ]; then quiet=(--progress-bar on); fi
    "$VENV/bin/python" -m pip install --disable-pip-version-check --no-input "$COMPILE" "${quiet[@]}" "$@" 2>"$SCRATCH/pip.log"
}

out_of_reach() { # whether pip failed because no index answered
    local signs='resolve host|name resolution|NewConnectionError|Network is unreachable|timed out|ProxyError|SSLError|from versions: none'
    grep -qiE "$signs" "$SCRATCH/pip.log"
}

pip_failed() { # what was being installed
    grep -v '^WARNING' "$SCRATCH/pip.log" | tail -n 8 >&2 || true
    if out_of_reach; then
        fail "$1 could not be installed: the package index is not within reach." \
            "Check the network (and PIP_INDEX_URL or a proxy), then run the same command again."
    fi
    if grep -qi 'no space left' "$SCRATCH/pip.log"; then
        fail "$1 could not be installed: the disk is full." "Free some space, then run the same command again."
    fi
    fail "$1 could not be installed; pip's reason is above." "Once it is solved, run the same command again."
}

install_torch() {
    if has_torch; then return; fi
    say "Installing torch $TORCH ..."
    if [ "$(uname -s)" = "Linux" ] && [ -z "$TAKES_CUDA" ]; then
        if pip_install --extra-index-url "$TORCH_INDEX" "torch==$TORCH+cpu"; then return; fi
        # other versions were found, so an index answers, but none of them is the build for CPUs
        if ! grep -q "from versions: [0-9]" "$SCRATCH/pip.log"; then pip_failed "torch"; fi
        fail "torch could not be installed: its small build for CPUs (from $TORCH_INDEX) cannot be had here." \
            "./install.sh --cuda takes the large one (5 to 6 GB on disk); the README has the install without torch."
    fi
    if [ -n "$TAKES_CUDA" ]; then need_space "$VENV" 6500 "a torch that may come with CUDA"; fi
    pip_install "torch==$TORCH" || pip_install "torch>=2.4" || pip_failed "torch"
}

light_requirements() { # what fugu and its fast tests need, without the learned coordinator and what trains it
    "$VENV/bin/python" - "$ROOT/pyproject.toml" <<'CODE'
import re, sys, tomllib
left_out = "torch transformers tokenizers safetensors numpy gguf cma trl peft reasoning-gym".split()
with open(sys.argv[1], "rb") as file:
    project = tomllib.load(file)["project"]
requirements = project["dependencies"] + project["optional-dependencies"]["test"]
while requirements:
    requirement = requirements.pop(0)
    if own := re.match(r"fugu-cli\[([\w-]+)\]", requirement): # no index has it
        requirements += project["optional-dependencies"][own[1]]
    elif re.match(r"[\w-]+", requirement)[0] not in left_out:
        print(requirement)
CODE
}

make_venv() { # "user", "demo", "test" or "fast"
    if is_ready "$1"; then return; fi
    need_venv
    if ! "$VENV/bin/python" -c 'import pip' >/dev/null 2>&1; then
        if [ -e "$VENV" ] && [ ! -e "$VENV/pyvenv.cfg" ]; then
            fail "$VENV exists and is not a virtual environment." "Move it away, then run the same command again."
        fi
        say "Making a virtual environment in $VENV ..."
        mkdir -p "$(dirname "$VENV")"
        "$PYTHON" -m venv --clear "$VENV" || fail "The virtual environment could not be made in $VENV." \
            "The reason is above; on Debian and Ubuntu the package python3-venv is often what is missing."
    fi
    if [ "$1" != fast ]; then install_torch; fi
    say "Installing fugu and the libraries it needs ..."
    case "$1" in
        fast)
            light_requirements >"$SCRATCH/requirements.txt"
            pip_install -r "$SCRATCH/requirements.txt" || pip_failed "fugu with its fast tests"
            pip_install --no-deps -e "$ROOT" || pip_failed "fugu"
            ;;
        demo) pip_install -e "${ROOT}[local]" "pytest>=8.3" || pip_failed "fugu" ;;
        test) pip_install -e "${ROOT}[test]" || pip_failed "fugu with its tests" ;;
        *) pip_install -e "${ROOT}[local]" || pip_failed "fugu" ;;
    esac
    wanted_stamp "$1" >"$VENV/.fugu-$1"
}

fetch_backbone() { # the small model that reads what kind of work a request asks for
    local name="${MODELS%% *}"
    if "$VENV/bin/fugu" models path "$name" >/dev/null 2>&1; then return; fi
    say "Fetching $name, which reads the kind of a request: 0.5 GB to download, 1.5 GB on disk ..."
    "$VENV/bin/fugu" models pull "$name" >/dev/null ||
        say "It could not be fetched; fugu works without it, and fugu models pull $name fetches it later."
}

# --- the three modes --------------------------------------------------------------------------------------------------

install_for_user() {
    VENV="$USER_VENV"
    if [ -e "$BIN/fugu" ] || [ -L "$BIN/fugu" ]; then
        [ "$(readlink "$BIN/fugu")" = "$VENV/bin/fugu" ] ||
            fail "$BIN/fugu exists and was not made by this script." "Move it away, then run ./install.sh again."
    fi
    if is_ready user; then
        say "fugu is installed and up to date in $VENV."
    else
        announce "This installs fugu for you in $VENV: $SIZE." \
            "It runs from $ROOT: keep that folder."
        need_space_first 1700 "fugu and its libraries"
        make_venv user
    fi
    mkdir -p "$BIN"
    ln -sfn "$VENV/bin/fugu" "$BIN/fugu"
    fetch_backbone
    say "The command is $BIN/fugu."
    case ":$PATH:" in
        *":$BIN:"*) ;;
        *) say "$BIN is not on your PATH yet; add this line to your shell's start-up file: export PATH=\"\$HOME/.local/bin:\$PATH\"" ;;
    esac
    say "Next: fugu doctor shows what is there. With a key in the environment (OPENAI_API_KEY, ANTHROPIC_API_KEY, ...) or"
    say "kept by fugu login it is ready; without one, fugu models pull fetches small models that run here (1.6 GB)."
}

demonstrate() {
    local work code=0 began=$SECONDS
    VENV="$REPO_VENV"
    if ! is_ready demo; then
        announce "The demo sets up, once: fugu and its libraries in $VENV ($SIZE)," \
            "and two small models (1.6 GB) in your cache folder; FUGU_CACHE_DIR moves them."
        need_space_first 1700 "fugu and its libraries"
        make_venv demo
    fi
    if ! "$VENV/bin/fugu" models path "${MODELS##* }" >/dev/null 2>&1; then
        need_space "${FUGU_CACHE_DIR:-$HOME}" 1900 "the models"
    fi
    # shellcheck disable=SC2086  # the names are separate words
    "$VENV/bin/fugu" models pull $MODELS >/dev/null
    work="$(mktemp -d "${TMPDIR:-/tmp}/fugu-demo.XXXXXX")/invoices"
    cp -R "$ROOT/tests/demo/invoices" "$work"
    cd "$work"
    PATH="$VENV/bin:$PATH"
    # sessions of its own: nothing known of your agents counts here, and nothing seen here counts elsewhere
    FUGU_DATA_DIR="$(dirname "$work")/data"
    export PATH FUGU_DATA_DIR PYTHONDONTWRITEBYTECODE=1
    git init -q
    git add -A
    git -c user.name=Demo -c user.email=demo@example.org -c commit.gpgsign=false commit -q -m "a small library with a bug"
    say "" "--- the tests of $work before ---"
    python -m pytest -q -p no:cacheprovider --tb=line || true
    trap - INT # from here on Ctrl-C is fugu's: it cuts the turn, writes it down, and ends with its own code
    say "" "--- fugu run --allow run_tests \"fix the failing tests\" (set up in $((SECONDS - began)) s) ---"
    fugu run --allow run_tests "fix the failing tests" || code=$?
    say "" "--- what it changed ---"
    git --no-pager diff
    say "" "--- the tests after ---"
    python -m pytest -q -p no:cacheprovider --tb=line || true
    say "" "The repository: $work"
    say "The session log: $(fugu sessions --latest --path 2>/dev/null || echo 'none')"
    say "It took $((SECONDS - began)) s in all. fugu ended with code $code."
    return "$code"
}

run_tests() {
    VENV="$REPO_VENV"
    COMPILE="--no-compile" # most of 20,000 files are never imported; Python compiles those that are
    local fast=""
    case " $* " in *" --fast "*) fast=yes ;; esac # what a contributor runs while writing
    if [ -n "$fast" ] && ! is_ready test && ! is_ready fast; then
        announce "The fast tests download, once: fugu, its libraries and the tools of the tests, without torch," \
            "into $VENV. On disk that is about 0.5 GB."
        need_space_first 1000 "fugu, its libraries and the tools of the tests"
        make_venv fast
    elif [ -z "$fast" ] && ! is_ready test; then
        announce "The tests download, once: fugu, its libraries and the tools of the tests (about 0.7 GB) into $VENV," \
            "and two models of 0.6 GB into your cache folder. On disk that is about 4 GB."
        need_space_first 2000 "fugu, its libraries and the tools of the tests"
        make_venv test
    fi
    cd "$ROOT"
    PATH="$VENV/bin:$PATH"
    export PATH
    ruff check .
    ruff format --check .
    local processes=4 checks="" failed=0 parallel
    if [ -n "$fast" ]; then
        processes=2 # nearly none of these tests waits for anything
    else
        { mypy && lint-imports && vulture; } >"$SCRATCH/checks" 2>&1 &
        checks=$!
    fi
    if [ "$(uname -s)" = "Linux" ]; then
        parallel=(--processes "$processes")
    else # a process with threads of the system, as macOS has them, must not fork; these import all tests again
        parallel=(--numprocesses "$processes" --dist loadfile --no-loadscope-reorder)
    fi
    PYTHONDONTWRITEBYTECODE="" python -m pytest "${parallel[@]}" "$@" || failed=$?
    if [ -n "$checks" ]; then
        wait "$checks" || failed=$?
        cat "$SCRATCH/checks"
    fi
    return "$failed"
}

main() {
    local word words=()
    for word in "$@"; do
        if [ "$word" = "--cuda" ]; then TAKES_CUDA=yes SIZE="with CUDA, 5 to 6 GB on disk"; else words+=("$word"); fi
    done
    set -- ${words[@]+"${words[@]}"}
    local mode="${1:-install}"
    case "$mode" in
        -h | --help | help) usage && return ;;
        install | demo | test) ;;
        *) usage >&2 && fail "There is no mode '$mode'." ;;
    esac
    if [ $# -gt 0 ]; then shift; fi
    find_python
    need_git
    SCRATCH="$(mktemp -d)"
    trap cleared EXIT
    trap interrupted INT TERM
    case "$mode" in
        install) install_for_user ;;
        demo) demonstrate ;;
        test) run_tests "$@" ;;
    esac
}

main "$@"
