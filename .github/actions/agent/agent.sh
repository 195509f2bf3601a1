#!/usr/bin/env bash
# "agent.sh install" and "agent.sh run": the steps of the action beside it.
#
# What it is given stands in INPUT_* variables and reaches agentcli as one argument each, or on stdin. Nothing is
# imported or run from the repository: Python starts isolated and outside of it. While agentcli
# writes, the runner takes no commands from the log, whatever a model says.
set -euo pipefail

venv="$RUNNER_TEMP/agentcli-venv"

fail() {
  echo "error: $1" >&2
  exit 2
}

install() {
  [[ "${INPUT_VERSION:-}" == installed ]] && return
  [[ "${INPUT_VERSION:-}" =~ ^[0-9A-Za-z.+]*$ ]] || fail "version is not valid - give one such as 1.2.3"
  # by default the very commit that the workflow names, not what an index has under the name
  local what python
  what="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../../.." && pwd)"
  [[ -z "${INPUT_VERSION:-}" ]] || what="agentcli==$INPUT_VERSION"
  cd "$RUNNER_TEMP"
  python="$(command -v python3 || true)"
  [[ -n "$python" ]] || fail "there is no python3 - use actions/setup-python before"
  "$python" -I -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "agentcli needs Python 3.11 - use actions/setup-python before"
  "$python" -I -m venv "$venv"
  "$venv/bin/python" -I -m pip install --quiet --disable-pip-version-check "$what"
}

run() {
  local agent=agent out code=0 token
  [[ "${INPUT_VERSION:-}" == installed ]] || agent="$venv/bin/agent"
  out="$(mktemp -d "$RUNNER_TEMP/agentcli.XXXXXX")"
  cd -- "${INPUT_WORKING_DIRECTORY:-.}" || fail "there is no such working-directory"

  local options=()
  [[ -z "${INPUT_MODEL:-}" ]] || options+=("--model=$INPUT_MODEL")
  [[ -z "${INPUT_MAX_BUDGET_USD:-}" ]] || options+=("--max-budget-usd=$INPUT_MAX_BUDGET_USD")
  [[ -z "${INPUT_TIMEOUT:-}" ]] || options+=("--timeout=$INPUT_TIMEOUT")

  token="$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')"
  echo "::stop-commands::$token"
  if [[ -n "${INPUT_PROMPT:-}" ]]; then
    options+=("--permission-mode=${INPUT_PERMISSION_MODE:-default}" --output-format=json)
    printf '%s' "$INPUT_PROMPT" | "$agent" run "${options[@]}" >"$out/result.json" || code=$?
    cat "$out/result.json"
    echo "result=$out/result.json" >>"$GITHUB_OUTPUT"
  else
    local base="${INPUT_BASE:-${GITHUB_BASE_REF:-}}"
    [[ -z "$base" ]] || options+=("--base=$base")
    [[ -z "${INPUT_FOCUS:-}" ]] || options+=("--focus=$INPUT_FOCUS")
    [[ -z "${INPUT_FAIL_ON:-}" ]] || options+=("--fail-on=$INPUT_FAIL_ON")
    options+=("--output=$out/findings.json" "--output=$out/findings.sarif")
    "$agent" review "${options[@]}" </dev/null >"$out/review.txt" || code=$?
    cat "$out/review.txt"
    for name in findings:json sarif:sarif; do
      [[ ! -e "$out/findings.${name#*:}" ]] || echo "${name%:*}=$out/findings.${name#*:}" >>"$GITHUB_OUTPUT"
    done
    if [[ -s "$out/review.txt" && -n "${GITHUB_STEP_SUMMARY:-}" ]]; then
      # indented: the summary shows it as code, and nothing in it is Markdown or HTML
      { echo "### Review"; echo; sed 's/^/    /' "$out/review.txt"; } >>"$GITHUB_STEP_SUMMARY"
    fi
  fi
  echo
  echo "::$token::"
  echo "exit-code=$code" >>"$GITHUB_OUTPUT"
  return "$code"
}

case "${1:-}" in
  install | run) "$1" ;;
  *) fail "usage: agent.sh install|run" ;;
esac
