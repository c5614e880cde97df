# environment.bash: the Python environment that tools/test and tools/quickstart run in.
#
# Owns: finding a Python, making and filling the virtual environment, system packages, and the
# folders for caches. Sourced by bash with `set -euo pipefail`; runs nothing by itself. Must not
# know what is tested or shown.
#
# After `prepare_environment KIND` these are set:
#   ROOT     the clone (absolute)      VENV     the virtual environment, ringlog installed in it
#   SCRATCH  a folder for caches and logs that belongs to this user
# The caller may name RINGLOG_PYTHON (an interpreter) and RINGLOG_VENV (an environment to use).

MINIMUM_PYTHON="3.11"
NETWORK_ATTEMPTS=3

say() { printf '%s\n' "$*" >&2; }
fail() {
    say "error: $1"
    [ -z "${2:-}" ] || say "hint: $2"
    exit 1
}

# A folder this user owns and can write, made if absent. Succeeds only then: a folder under /tmp
# that somebody else made first is not used.
own_folder() {
    mkdir -p "$1" 2>/dev/null && [ -O "$1" ] && [ -w "$1" ] && [ -x "$1" ]
}

# Where caches go: with an empty environment there is no HOME, and a service user's home may be
# missing or not writable; pip, git and mypy all want one.
choose_scratch() {
    local user entry
    user="$(id -u)"
    if [ -z "${HOME:-}" ]; then
        entry="$(getent passwd "$user" || true)"
        HOME="$(printf '%s' "$entry" | cut -d: -f6)"
    fi
    local id
    id="$(printf '%s' "$ROOT" | cksum | cut -d' ' -f1)"
    local candidate
    for candidate in "${XDG_CACHE_HOME:-}" "${HOME:-/nonexistent}/.cache" \
        "${TMPDIR:-/tmp}/ringlog-cache-$user"; do
        [ -n "$candidate" ] || continue
        if own_folder "$candidate" && own_folder "$candidate/ringlog/$id"; then
            SCRATCH="$candidate/ringlog/$id"
            break
        fi
    done
    [ -n "${SCRATCH:-}" ] || fail "no folder for caches can be written" \
        "set XDG_CACHE_HOME to a folder that you own"
    if ! { [ -d "${HOME:-}" ] && [ -w "${HOME:-}" ]; }; then
        own_folder "$SCRATCH/home"
        HOME="$SCRATCH/home"
    fi
    export HOME
}

# ---- system packages ------------------------------------------------------------------------

# run_with_retries COMMAND...: a network hiccup is not a failure yet.
run_with_retries() {
    local attempt
    for ((attempt = 1; attempt <= NETWORK_ATTEMPTS; attempt++)); do
        "$@" && return 0
        [ "$attempt" -eq "$NETWORK_ATTEMPTS" ] || {
            say "attempt $attempt of $NETWORK_ATTEMPTS failed: $*"
            sleep $((attempt * 3))
        }
    done
    return 1
}

# install_packages PACKAGE...: installs with apt-get as root, else names the command that would.
install_packages() {
    local hint="sudo apt-get install -y $*"
    command -v apt-get >/dev/null || fail "missing: $*" "install these packages: $*"
    [ "$(id -u)" -eq 0 ] || fail "missing system packages: $*" "$hint"
    say "installing system packages: $*"
    export DEBIAN_FRONTEND=noninteractive
    run_with_retries apt-get -qq update >&2 || say "apt-get update failed; trying with the old lists"
    run_with_retries apt-get -qq install -y --no-install-recommends "$@" >&2 ||
        fail "apt-get could not install: $*" "$hint"
}

# need_packages PACKAGE=COMMAND...: installs each package whose command is not found.
need_packages() {
    local pair missing=()
    for pair in "$@"; do
        command -v "${pair#*=}" >/dev/null || missing+=("${pair%%=*}")
    done
    [ "${#missing[@]}" -eq 0 ] || install_packages "${missing[@]}"
}

# ---- Python ---------------------------------------------------------------------------------

python_is_new_enough() {
    "$1" -c "import sys; sys.exit(sys.version_info < tuple(map(int, '$MINIMUM_PYTHON'.split('.'))))" \
        >/dev/null 2>&1
}

# can_make_environments PYTHON: Debian's python3 comes without ensurepip until python3-venv is in.
can_make_environments() {
    "$1" -c 'import ensurepip, venv' >/dev/null 2>&1 || "$1" -m virtualenv --version >/dev/null 2>&1
}

# Sets PYTHON to the first interpreter that is new enough and can make an environment, or to the
# first that is new enough. Empty when there is none.
look_for_python() {
    local candidate first=""
    PYTHON=""
    for candidate in ${RINGLOG_PYTHON:-} python3.11 python3 python3.12 python3.13 python3.14 python; do
        python_is_new_enough "$candidate" || continue
        [ -n "$first" ] || first="$candidate"
        if can_make_environments "$candidate"; then
            PYTHON="$candidate"
            return 0
        fi
    done
    PYTHON="$first"
}

find_python() {
    look_for_python
    [ -n "$PYTHON" ] || {
        install_packages python3 python3-venv
        look_for_python
    }
    [ -n "$PYTHON" ] || fail "no Python $MINIMUM_PYTHON or newer on PATH ($PATH)" \
        "install one and name it: RINGLOG_PYTHON=/path/to/python3.11 $0"
    can_make_environments "$PYTHON" || {
        local version
        version="$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
        install_packages "python$version-venv"
    }
}

# An environment left by an older Python, or copied from elsewhere, does not count.
environment_works() {
    [ -x "$1/bin/python" ] && [ -w "$1" ] && python_is_new_enough "$1/bin/python" &&
        [ "$("$1/bin/python" -c 'import sys; print(sys.prefix)' 2>/dev/null)" = "$1" ] &&
        "$1/bin/python" -m pip --version >/dev/null 2>&1
}

make_environment() {
    VENV="${RINGLOG_VENV:-$ROOT/.venv}"
    # A clone that this user cannot write, or an environment that another user made in it.
    if [ -e "$VENV" ] && [ ! -w "$VENV" ] || [ ! -e "$VENV" ] && [ ! -w "$(dirname "$VENV")" ]; then
        VENV="$SCRATCH/venv"
    fi
    environment_works "$VENV" && return 0
    find_python
    say "making a virtual environment in $VENV with $PYTHON"
    rm -f "$VENV/ringlog-installed"
    if "$PYTHON" -c 'import ensurepip, venv' >/dev/null 2>&1; then
        "$PYTHON" -m venv --clear "$VENV" >&2
    else
        "$PYTHON" -m virtualenv --quiet --clear "$VENV" >&2
    fi || fail "$PYTHON cannot make a virtual environment in $VENV" "sudo apt-get install -y python3-venv"
}

# ---- ringlog in the environment -------------------------------------------------------------

pip_install() {
    run_with_retries "$VENV/bin/python" -m pip --disable-pip-version-check install -q "$@" >&2 ||
        fail "pip could not install: $*" "check the network, or set PIP_INDEX_URL to an index you reach"
}

# What an installation depends on besides the Python sources: a change of it installs anew.
installation_stamp() {
    printf '%s %s %s\n' "$1" "$ROOT" "$(cat "$ROOT/setup.cfg" "$ROOT/pyproject.toml" | cksum)"
}

# The sources as a tar stream, without what tools left beside them.
pack_sources() {
    tar -C "$ROOT" --exclude=./.git --exclude=./.venv --exclude=./build --exclude=./dist \
        --exclude='./*.egg-info' --exclude='./ringlog-data*' --exclude=__pycache__ \
        --exclude='./.*_cache' --exclude=./.hypothesis -cf - .
}

# Installs from a copy of the sources: pip writes build/ and egg-info beside what it builds, and
# a stale build/ would ship deleted modules (or the clone may not be ours to write).
install_copy() {
    local copy="$SCRATCH/source"
    rm -rf "$copy"
    mkdir -p "$copy"
    pack_sources | tar -C "$copy" -xf -
    pip_install "$copy$1"
    # The version does not change with each edit; pip would keep the old files without this.
    pip_install --no-deps --force-reinstall "$copy"
    rm -rf "$copy"
}

# prepare_environment KIND: KIND is `test` (what the tests need, sources used in place) or `plain`
# (what a user gets). An up-to-date `test` environment serves for `plain` too.
prepare_environment() {
    local kind="$1" stamp copied
    [ -d "$ROOT/ringlog/storage" ] || fail "$ROOT was cloned or copied without symbolic links" \
        "run: git config core.symlinks true && git checkout -- ringlog (on Windows use WSL)"
    choose_scratch
    make_environment
    local named="${RINGLOG_VENV:-}"
    # The broker refuses variables with its prefix that are no settings.
    unset RINGLOG_VENV RINGLOG_PYTHON
    # An environment that the caller names and that has ringlog already is used as it is.
    [ -z "$named" ] || [ ! -x "$VENV/bin/ringlog" ] || return 0
    stamp="$VENV/ringlog-installed"
    copied="$(installation_stamp "$kind copy") $(pack_sources | cksum)"
    case "$(cat "$stamp" 2>/dev/null)" in
    "$(installation_stamp test)" | "$copied") return 0 ;;
    esac
    rm -f "$stamp"
    if [ "$kind" = plain ]; then
        install_copy ""
    elif [ -w "$ROOT" ]; then
        pip_install --editable "$ROOT[test]"
        installation_stamp test >"$stamp"
        return 0
    else
        install_copy "[test]"
    fi
    printf '%s\n' "$copied" >"$stamp"
}

# What the tools write outside the clone, so that `git status` stays clean and an unwritable
# clone works.
export_cache_folders() {
    own_folder "$SCRATCH/hypothesis" && export HYPOTHESIS_STORAGE_DIRECTORY="$SCRATCH/hypothesis"
    own_folder "$SCRATCH/mypy" && export MYPY_CACHE_DIR="$SCRATCH/mypy"
    own_folder "$SCRATCH/ruff" && export RUFF_CACHE_DIR="$SCRATCH/ruff"
    own_folder "$SCRATCH/pytest" && PYTEST_CACHE="$SCRATCH/pytest"
}
