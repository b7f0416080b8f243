#!/bin/sh
# Installs those of the named Debian packages that are missing, as root, and asks
# for root only then. On another distribution it says what to install.
#
# A package that brings a service (haproxy, nginx) is installed without it: neither
# started now nor enabled for the next boot. Its program is what is wanted here.
#
#   setup.sh PACKAGE...
set -eu
here=$(dirname "$0")

if ! command -v dpkg-query >/dev/null; then
	echo "setup: not a Debian machine; make sure that these are installed: $*" >&2
	exit 0
fi

missing=
for package; do
	state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
	[ "$state" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

echo "setup: installing$missing" >&2
"$here/as-root.sh" apt-get update -q
# shellcheck disable=SC2086 # one word a package
"$here/as-root.sh" env DEBIAN_FRONTEND=noninteractive sh "$here/install-idle.sh" $missing
