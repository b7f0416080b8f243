#!/bin/sh
# go test with the test programs running as root. They are built as the user who
# calls, so that the build cache stays theirs; where only su is there, root builds
# them too, because su would ask for its password once a package.
#
#   go-test.sh [FLAG...] PACKAGE...
set -eu
here=$(cd "$(dirname "$0")" && pwd)
if [ "$(id -u)" = 0 ]; then
	exec go test "$@"
fi
if command -v sudo >/dev/null; then
	sudo -v # ask once, before packages run side by side
	exec go test -exec "'$here/as-root.sh'" "$@"
fi
exec "$here/as-root.sh" "$(command -v go)" test "$@"
