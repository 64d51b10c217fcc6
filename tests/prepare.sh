#!/usr/bin/env bash
# Installs what the tests need and this machine lacks. Says nothing where nothing is missing;
# where it may not install, it names what is missing and lets the tests that need it fail.
set -euo pipefail

missing=()
ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null || missing+=(postgresql)
command -v psql >/dev/null || missing+=(postgresql-client)
command -v redis-server >/dev/null || missing+=(redis-server)
/usr/bin/python3 -c 'import psycopg' 2>/dev/null || missing+=(python3 python3-psycopg)
/usr/bin/python3 -m pip --version >/dev/null 2>&1 || missing+=(python3-pip)
command -v curl >/dev/null || missing+=(curl)
command -v chromium >/dev/null || missing+=(chromium fonts-dejavu-core)
command -v ip >/dev/null || missing+=(iproute2)
command -v promtool >/dev/null || missing+=(prometheus) # for promtool alone
command -v cc >/dev/null || missing+=(gcc libc6-dev) # the race detector links with it

for tool in node npm; do
  command -v "$tool" >/dev/null || echo "prepare: $tool is missing (Node 20 or newer); tests/publishers, tests/real and tests/browser need it" >&2
done

[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
  echo "prepare: missing here: ${missing[*]}. As root on Debian they would be installed; please install them." >&2
  exit 0
fi

echo "prepare: installing ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
# The tests make clusters of their own; the package need not start one.
if [ ! -e /etc/postgresql-common/createcluster.conf ]; then
  mkdir -p /etc/postgresql-common
  echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.conf
fi
# RUNLEVEL=1: a package that brings a service does not start it; the tests start their own.
if ! { apt-get update -qq && RUNLEVEL=1 apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null; }; then
  echo "prepare: could not install ${missing[*]}; the tests that need them will fail and say so" >&2
fi
