#!/bin/bash
# The startup script of the VM of infra/bake_image.py: it installs the packages that the agent would install at every start.
# The last line on the serial console reports whether it succeeded; bake_image.py then stops the VM.

set -u -o pipefail

readonly METADATA="http://${GCE_METADATA_HOST:-metadata.google.internal}/computeMetadata/v1/instance/attributes"
export DEBIAN_FRONTEND=noninteractive HOME="${HOME:-/root}"

install_packages() {
  local text packages engine=docker.io
  text="$(curl --fail --silent --retry 5 --header 'Metadata-Flavor: Google' "${METADATA}/trainmaster-packages")" || return 1
  read -r -a packages <<<"${text}"
  apt-get update --quiet --quiet || return 1
  if command -v docker >/dev/null || command -v podman >/dev/null; then
    engine=""
  fi
  # A job needs pip as well, and setuptools to build packages without wheels.
  apt-get install --quiet --quiet --yes --no-install-recommends --option DPkg::Lock::Timeout=600 \
    python3-pip python3-setuptools python3-wheel ca-certificates ${engine:+"${engine}"} || return 1
  if command -v nvidia-ctk >/dev/null; then
    nvidia-ctk runtime configure --runtime=docker || return 1
  fi
  # As the agent installs them: into the user's folder, where pip need not replace packages of the distribution.
  if [ "${#packages[@]}" -gt 0 ]; then
    PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install --user --no-cache-dir "${packages[@]}" || return 1
  fi
  apt-get clean && rm -rf /var/lib/apt/lists/*
}

if install_packages; then
  echo "trainmaster-bake: complete"
else
  echo "trainmaster-bake: failed"
fi
