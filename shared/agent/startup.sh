#!/bin/bash
# Trainmaster: what a VM runs at every boot.
#
# Static: nothing of a job is in here, everything specific is JSON in the VM's metadata. It fetches the agent from the
# metadata key `trainmaster-agent` into a directory below $HOME and keeps it running until the agent says it is over
# (exit status 0) or the machine shuts down: SIGTERM reaches the agent, which ends the program and says goodbye.
#
#   GCE_METADATA_HOST   metadata server (default: metadata.google.internal)
#   HOME                may be unset, as it is under Google's startup script runner

set -u -o pipefail

readonly METADATA_HOST="${GCE_METADATA_HOST:-metadata.google.internal}"
readonly AGENT_URL="http://${METADATA_HOST}/computeMetadata/v1/instance/attributes/trainmaster-agent"
readonly DELAY_MAX_S=30
readonly HEALTHY_S=60

if [ -z "${HOME:-}" ]; then
  HOME="$(getent passwd "$(id -u)" | cut -d: -f6)"
  HOME="${HOME:-/root}"
fi
export HOME
readonly WORK="${HOME}/trainmaster"

# Deep Learning VM images keep their Python here, and their PATH only in login shells.
# A local VM (GCE_METADATA_HOST is set) has its own PATH.
if [ -z "${GCE_METADATA_HOST:-}" ] && [ -x /opt/conda/bin/python3 ]; then
  PATH="/opt/conda/bin:${PATH}"
  export PATH
fi

child=""
stopping=0
interrupted=0

say() {
  printf '[trainmaster] %s\n' "$*"
}

# shellcheck disable=SC2317  # called by the trap
on_stop() {
  stopping=1
  interrupted=1
  if [ -n "${child}" ]; then
    kill -TERM "${child}" 2>/dev/null
  fi
}
trap on_stop TERM INT

# Waits for the child to be really gone: `wait` also returns when a trapped signal arrives.
wait_for_child() {
  local status
  while :; do
    interrupted=0
    wait "${child}"
    status=$?
    if [ "${interrupted}" -eq 0 ]; then
      break
    fi
  done
  child=""
  return "${status}"
}

pause() {
  sleep "$1" &
  child=$!
  if [ "${stopping}" -eq 1 ]; then
    kill -TERM "${child}" 2>/dev/null
  fi
  wait_for_child
}

fetch() {
  if command -v curl >/dev/null 2>&1; then
    curl --silent --show-error --fail --noproxy '*' --max-time 30 --header 'Metadata-Flavor: Google' \
      --output "$2" "$1"
  else
    python3 -c '
import sys, urllib.request
request = urllib.request.Request(sys.argv[1], headers={"Metadata-Flavor": "Google"})
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
with opener.open(request, timeout=30) as answer, open(sys.argv[2], "wb") as file:
    file.write(answer.read())
' "$1" "$2"
  fi
}

mkdir -p "${WORK}" || exit 1

delay=1
until fetch "${AGENT_URL}" "${WORK}/agent.py.new" && mv -f "${WORK}/agent.py.new" "${WORK}/agent.py"; do
  if [ "${stopping}" -eq 1 ]; then
    exit 0
  fi
  say "The agent cannot be fetched from the metadata server; trying again in ${delay} s."
  pause "${delay}"
  delay=$((delay * 2 < DELAY_MAX_S ? delay * 2 : DELAY_MAX_S))
done

delay=1
while [ "${stopping}" -eq 0 ]; do
  started="${SECONDS}"
  python3 "${WORK}/agent.py" "${WORK}" </dev/null &
  child=$!
  if [ "${stopping}" -eq 1 ]; then
    kill -TERM "${child}" 2>/dev/null
  fi
  wait_for_child
  status=$?
  if [ "${status}" -eq 0 ] || [ "${stopping}" -eq 1 ]; then
    break
  fi
  if [ $((SECONDS - started)) -ge "${HEALTHY_S}" ]; then
    delay=1
  fi
  say "The agent ended with status ${status}; starting it again in ${delay} s."
  pause "${delay}"
  delay=$((delay * 2 < DELAY_MAX_S ? delay * 2 : DELAY_MAX_S))
done
exit 0
