#!/bin/bash
# Trainmaster: what a VM runs at every boot.
#
# This script is the same for all jobs; everything about a job is JSON in the VM's metadata. It downloads the agent, a
# zip application in Cloud Storage that the metadata key `trainmaster-agent` names, into a directory below $HOME, and
# verifies its hash. It restarts the agent until the agent exits with status 0 or the VM shuts down: shutdown.sh sends
# SIGTERM to this script, which forwards it to the agent, which ends the program and reports its exit.
# An image needs Python 3.8 with pip. On Debian and Ubuntu images without them, this script installs them.
#
#   GCE_METADATA_HOST         metadata server (default: metadata.google.internal)
#   STORAGE_EMULATOR_HOST     Cloud Storage of the local stack, which is called without a token (default: Google's)
#   TRAINMASTER_EMULATED_VM   set on a local VM, which shares the services of its machine: they are left as they are
#   HOME                      may be unset, as it is under Google's startup script runner

set -u -o pipefail

readonly METADATA_HOST="${GCE_METADATA_HOST:-metadata.google.internal}"
readonly METADATA_URL="http://${METADATA_HOST}/computeMetadata/v1/instance/"
readonly DELAY_MAX_S=30
readonly HEALTHY_S=60
readonly NO_AGENT=75
readonly ANOTHER_JOB=76

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

log() {
  printf '[trainmaster] %s\n' "$*"
}

# shellcheck disable=SC2317,SC2329  # called by the trap
on_stop() {
  stopping=1
  interrupted=1
  if [ -n "${child}" ]; then
    kill -TERM "${child}" 2>/dev/null
  fi
}
trap on_stop TERM INT

# Waits until the child has ended: `wait` alone also returns when a trapped signal arrives.
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

# Runs the agent that the metadata names (gs://BUCKET/agent/SHA256.zip), and downloads it before that unless the disk has
# it. It is put in place only if its content has that hash. One process does both: every boot waits for Python's modules.
# Exit status 75 means that there is no such agent yet. (EX_TEMPFAIL of sysexits.h)
run_agent() {
  exec python3 -c '
import sys

sys.path[:] = filter(None, sys.path)  # no module of the working directory
import hashlib, json, os, runpy, urllib.error, urllib.parse, urllib.request

metadata_url, path, work = sys.argv[1:]
storage = os.environ.get("STORAGE_EMULATOR_HOST", "")

def get(url, headers, is_direct=True):
    handlers = [urllib.request.ProxyHandler({})] if is_direct else []
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.build_opener(*handlers).open(request, timeout=30) as response:
        return response.read()

def get_metadata(name):
    return get(metadata_url + name, {"Metadata-Flavor": "Google"}).decode().strip()

def has_hash(content):
    return hashlib.sha256(content).hexdigest() == expected

def give_up(problem):
    print(problem, file=sys.stderr, flush=True)
    sys.exit(75)

def has_agent():
    if not os.path.exists(path):
        return False
    with open(path, "rb") as file:
        return has_hash(file.read())

url = metadata_url
try:
    uri = get_metadata("attributes/trainmaster-agent")
    bucket, _, name = uri[len("gs://"):].partition("/")
    expected = name.rpartition("/")[2][:64]
    if not has_agent():
        headers = {}
        if not storage:
            token = json.loads(get_metadata("service-accounts/default/token"))
            headers["Authorization"] = "Bearer " + token["access_token"]
        base = storage or "https://storage.googleapis.com"
        base = (base if "://" in base else "http://" + base).rstrip("/")
        quote = urllib.parse.quote
        url = "%s/storage/v1/b/%s/o/%s?alt=media" % (base, quote(bucket, safe=""), quote(name, safe=""))
        content = get(url, headers, is_direct=bool(storage))
        if not has_hash(content):
            give_up("%s does not have the SHA-256 hash in its name" % uri)
        with open(path + ".new", "wb") as file:
            file.write(content)
        os.replace(path + ".new", path)
except Exception as error:
    give_up("%s: %s: %s" % (url, type(error).__name__, error))
sys.argv = [path, work]
runpy.run_path(path, run_name="__main__")
' "$@"
}

has_python() {
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2>/dev/null
}

# One start of Python for both: every boot waits for it.
has_python_with_pip() {
  python3 -c 'import sys, importlib.machinery as m; sys.exit(sys.version_info < (3, 8) or m.PathFinder.find_spec("pip") is None)' \
    2>/dev/null
}

# pip needs certificates to reach anything, and setuptools (which Debian's pip installs) to build what has no wheel.
install_python() {
  export DEBIAN_FRONTEND=noninteractive
  apt-get update --quiet --quiet </dev/null \
    && apt-get install --quiet --quiet --yes --no-install-recommends --option DPkg::Lock::Timeout=300 \
      python3 python3-pip ca-certificates </dev/null
}

# Fails if Python is missing and cannot be installed. A missing pip is not a failure: a job in a container needs none.
provide_python() {
  local tries_left=5 delay=2
  until has_python_with_pip; do
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1 || [ "${tries_left}" -eq 0 ]; then
      if ! has_python; then
        log "Python 3.8 or newer is missing and cannot be installed here. Use an image that has it."
        return 1
      fi
      log "pip is missing and cannot be installed here: the job's packages cannot be installed."
      return 0
    fi
    log "This image has no Python 3.8 with pip: installing python3 and python3-pip."
    if install_python; then
      tries_left=0
      continue
    fi
    if [ "${stopping}" -eq 1 ]; then
      return 1
    fi
    tries_left=$((tries_left - 1))
    pause "${delay}"
    delay=$((delay * 2))
  done
}

# Upgrades at the first boot would hold the lock of the package manager, and replace the libraries of a GPU driver that
# is loaded: programs then fail with "driver/library version mismatch". A local VM shares its machine's services.
hold_upgrades() {
  if [ -z "${TRAINMASTER_EMULATED_VM:-}" ] && [ "$(id -u)" -eq 0 ] && command -v systemctl >/dev/null 2>&1; then
    systemctl mask --now apt-daily.timer apt-daily-upgrade.timer >/dev/null 2>&1 || true
  fi
}

mkdir -p "${WORK}" || exit 1
hold_upgrades
read -r boot </proc/sys/kernel/random/boot_id && printf '%s %s\n' "${boot}" "$$" >"${WORK}/startup" # for shutdown.sh
provide_python || exit 1

delay=1
while [ "${stopping}" -eq 0 ]; do
  started="${SECONDS}"
  run_agent "${METADATA_URL}" "${WORK}/agent.pyz" "${WORK}" </dev/null &
  child=$!
  if [ "${stopping}" -eq 1 ]; then
    kill -TERM "${child}" 2>/dev/null
  fi
  wait_for_child
  status=$?
  if [ "${status}" -eq 0 ] || [ "${stopping}" -eq 1 ]; then
    break
  fi
  if [ "${status}" -eq "${ANOTHER_JOB}" ] && [ $((SECONDS - started)) -ge 3 ]; then
    delay=1
    continue # another job waits for this VM
  fi
  wait_s="${delay}"
  if [ "${status}" -eq "${NO_AGENT}" ]; then
    wait_s=$((delay + RANDOM % (delay + 1))) # so that the VMs of a gang do not retry in step
    log "The agent cannot be downloaded; trying again in ${wait_s} s."
  else
    if [ $((SECONDS - started)) -ge "${HEALTHY_S}" ]; then
      delay=1
      wait_s=1
    fi
    log "The agent ended with status ${status}; starting it again in ${wait_s} s."
  fi
  pause "${wait_s}"
  delay=$((delay * 2 < DELAY_MAX_S ? delay * 2 : DELAY_MAX_S))
done
exit 0
