#!/bin/bash
# A second look at tests that have failed in a whole run, where the machine had more to
# do than they wait for. At most three are looked at, each must pass three times in a
# row, and what had no name, was a race, or ran out of time gets none.
#
#   again.sh LOG            what make test has printed
set -uo pipefail
cd "$(dirname "$0")/../.."
log=${1:?usage: again.sh LOG}

if grep -qE 'WARNING: DATA RACE|^panic: |\[build failed\]|\[setup failed\]' "$log"; then
	echo "again: a race, a panic or a build: that is no bad luck"
	exit 1
fi

# A package's failed tests come before the line that says that it has failed.
failed=$(awk '
	/^--- FAIL: / { names[++n] = $3 }
	/^FAIL\t/ {
		if (!n) print $2, "-"
		for (i = 1; i <= n; i++) print $2, names[i]
		n = 0
	}' "$log")
count=$(grep -c . <<<"$failed")
if [ "$count" = 0 ] || [ "$count" -gt 3 ] || grep -q ' -$' <<<"$failed"; then
	printf 'again: no second look at:\n%s\n' "${failed:-(no test is named)}"
	exit 1
fi

unsteady=0
while read -r package name; do
	echo "--- again: $name ($package)"
	make test PKG="$package" ARGS="-count=3 -run ^$name\$\$" </dev/null || exit 1
	unsteady=$((unsteady + 1))
done <<<"$failed"
echo "again: UNSTEADY, each to be mended: $unsteady"
printf '    %s\n' "$failed"
