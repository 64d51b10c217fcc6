#!/usr/bin/env bash
# Builds the program twice, as a release is built, from two copies of the last commit in two places and
# without anything built before, and compares the bytes.
set -euo pipefail
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
for place in one another/place; do
	mkdir -p "$work/$place"
	git archive HEAD | tar -x -C "$work/$place"
	(cd "$work/$place" && GOCACHE=$work/cache-${place##*/} CGO_ENABLED=0 ${GO:-go} build -trimpath -buildvcs=false -ldflags '-s -w' -o waybill ./cmd/waybill)
	(cd "$work/$place" && sha256sum waybill)
done | tee "$work/sums"
[ "$(sort -u "$work/sums" | wc -l)" = 1 ] || { echo "two builds of one commit differ" >&2; exit 1; }
