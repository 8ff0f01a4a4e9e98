#!/bin/bash
# Trainmaster: what a VM runs when it shuts down, while its network is still up: the agent reports the program's exit.
#
# Without this script neither startup.sh nor the agent would receive a signal before systemd kills all remaining
# processes at the very end: Google's unit for startup scripts stops only its own runner (KillMode=process).
# Source: google-startup-scripts.service and google-shutdown-scripts.service of GoogleCloudPlatform/guest-agent.

set -u

readonly TRIES=1500 # 0.2 s each: longer than Google waits for a VM to shut down

if [ -z "${HOME:-}" ]; then
  HOME="$(getent passwd "$(id -u)" | cut -d: -f6)"
  HOME="${HOME:-/root}"
fi

# A process id from an earlier boot may belong to any process now.
read -r boot pid 2>/dev/null <"${HOME}/trainmaster/startup" || exit 0
read -r current </proc/sys/kernel/random/boot_id
[ "${boot}" = "${current}" ] || exit 0

kill -TERM "${pid}" 2>/dev/null
for ((tries = 0; tries < TRIES; tries++)); do
  kill -0 "${pid}" 2>/dev/null || exit 0
  sleep 0.2
done
