#!/bin/sh
# Open MPI's launch agent in the place of ssh: `netns_agent.sh [OPTIONS] ADDRESS COMMAND...` runs the command in the network namespace that has
# that address (tools/machines.py makes them), under a host name of its own. With the name `-` in the place of an address: runs it here.
while [ "${1#-}" != "$1" ]; do shift; done
address=$1
shift
machine=${PLIMSOLL_MACHINES:?}-${address##*.}
exec ip netns exec "$machine" unshare --uts sh -c "hostname $machine && cd / && exec sh -c '$(printf %s "$*" | sed "s/'/'\\\\''/g")'"
