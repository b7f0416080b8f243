#!/bin/sh
# Installs Debian packages as root and leaves the services that they bring idle:
# not started now (maintainer scripts ask policy-rc.d, see invoke-rc.d(8)), and not
# enabled for the next boot. Services that were there before stay as they are.
#
#   install-idle.sh PACKAGE...
set -eu
policy=/usr/sbin/policy-rc.d

services() {
	command -v systemctl >/dev/null || return 0
	systemctl list-unit-files --type=service --no-legend | cut -d' ' -f1
}

before=$(services)
if [ ! -e "$policy" ]; then
	trap 'rm -f "$policy"' EXIT
	trap 'exit 1' HUP INT TERM
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod 755 "$policy"
fi
apt-get install -q -y --no-install-recommends "$@"

for service in $(services); do
	printf '%s\n' "$before" | grep -qxF "$service" || systemctl disable --quiet "$service" || true
done
