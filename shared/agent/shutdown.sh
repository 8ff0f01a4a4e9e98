#!/bin/bash
# Trainmaster: what a VM runs when it shuts down, while its network is still up: it has the agent say goodbye.
#
# Without it neither startup.sh nor the agent would hear of a shutdown before systemd, at its very end, kills whatever
# is left: Google's unit for startup scripts stops its runner alone (KillMode=process).
# Source: google-startup-scripts.service and google-shutdown-scripts.service of GoogleCloudPlatform/guest-agent.

set -u

readonly TRIES=1500 # a fifth of a second each: longer than Google waits for a VM to be down

if [ -z "${HOME:-}" ]; then
  HOME="$(getent passwd "$(id -u)" | cut -d: -f6)"
  HOME="${HOME:-/root}"
fi

# A number of an earlier boot may be anybody's by now.
read -r boot pid 2>/dev/null <"${HOME}/trainmaster/startup" || exit 0
read -r current </proc/sys/kernel/random/boot_id
[ "${boot}" = "${current}" ] || exit 0

kill -TERM "${pid}" 2>/dev/null
for ((tries = 0; tries < TRIES; tries++)); do
  kill -0 "${pid}" 2>/dev/null || exit 0
  sleep 0.2
done
