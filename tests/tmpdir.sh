#!/usr/bin/env bash
# Says where the tests put their databases: in memory where there is plenty of it, since most of
# their time would go into waiting for a disk whose durability no test can see. Nothing said: where
# the system puts temporary files.
set -u
dir=/dev/shm
need=$((4 << 20)) # KiB, of the file system and of memory

[ -z "${TMPDIR:-}" ] && [ -d "$dir" ] && [ -w "$dir" ] || exit 0
[ "$(df -k --output=avail "$dir" | tail -n 1)" -ge "$need" ] || exit 0
[ "$(awk '$1 == "MemAvailable:" { print $2 }' /proc/meminfo)" -ge $((2 * need)) ] || exit 0
# Containers often mount it so that no program may run there, and tests run some.
probe=$(mktemp "$dir/waybill-XXXXXX") || exit 0
printf '#!/bin/sh\nexit 0\n' >"$probe"
chmod +x "$probe"
"$probe" 2>/dev/null && echo "$dir"
rm -f "$probe"
