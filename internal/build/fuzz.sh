#!/bin/bash
# Runs every fuzzer of the module, one after the other.
#
#   fuzz.sh DURATION        as in go test -fuzztime: 5s, 2m
set -euo pipefail
cd "$(dirname "$0")/../.."
duration=${1:?usage: fuzz.sh DURATION}

log=$(mktemp)
trap 'rm -f "$log"' EXIT

fuzz() {
	go test -run '^$' -fuzz "^$2\$" -fuzztime "$duration" -fuzzminimizetime 10x "$1" </dev/null 2>&1 | tee "$log"
}

# The names that go test -list prints come before the line of their package.
fuzzers=$(go test -list '^Fuzz' ./... | awk '
	/^Fuzz/ { names[++n] = $1 }
	/^FAIL/ { print > "/dev/stderr" }
	/^(ok|\?)/ { for (i = 1; i <= n; i++) print $2, names[i]; n = 0 }')

failed=0
count=0
while read -r package name; do
	[ -n "$name" ] || continue
	count=$((count + 1))
	echo "--- $name ($package)"
	fuzz "$package" "$name" && continue
	# The go command sometimes takes the end of the time for a failure. Such a run
	# leaves no failing input; it gets one more try.
	if grep -q 'context deadline exceeded' "$log" && ! grep -q 'Failing input' "$log"; then
		echo "--- $name: no failing input; once more"
		fuzz "$package" "$name" && continue
	fi
	failed=$((failed + 1))
done <<<"$fuzzers"

echo "fuzz: $count fuzzers, $duration each, $failed failed"
[ "$failed" = 0 ]
