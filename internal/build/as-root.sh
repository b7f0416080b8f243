#!/bin/sh
# Runs a program as root: directly if we are, else through sudo or su, which ask.
#
#   as-root.sh PROGRAM [ARGUMENT...]
#
# The program keeps PATH, CI, the BATON_ variables and the module cache, which root
# only reads. It does not get our build cache, so that no file of root's ends up
# in there.
set -eu
[ "$(id -u)" != 0 ] || exec "$@"

set -- env "PATH=$PATH:/usr/sbin:/sbin" "$@"
if command -v go >/dev/null; then
	set -- env "GOMODCACHE=$(go env GOMODCACHE)" "GOPROXY=$(go env GOPROXY)" "GOFLAGS=$(go env GOFLAGS)" "$@"
fi
for name in $(env | sed -n 's/^\(CI\|BATON_[A-Z0-9_]*\)=.*/\1/p'); do
	value=
	eval "value=\$$name"
	set -- env "$name=$value" "$@"
done

if command -v sudo >/dev/null; then
	exec sudo -- "$@"
fi
if ! command -v su >/dev/null; then
	echo "as-root: this needs root, and there is neither sudo nor su" >&2
	exit 1
fi
line=
for word; do
	line="$line '$(printf %s "$word" | sed "s/'/'\\\\''/g")'"
done
exec su root -s /bin/sh -c "exec$line"
