# A container that tries to escape from its runtime: it ignores signals, and its
# processes have other sessions and process groups, other parents, and other files.
# At the end there are nine processes with this value of MARK; the last line counts
# its own three too.
trap '' TERM HUP INT
sleep 1000 &
setsid sleep 1000 &
setsid sh -c 'setsid sh -c "sleep 1000 & exec sleep 1000" & exit' &
(setsid sh -c 'trap "" TERM HUP; sleep 1000 & (sleep 1000; :) & wait' &)
(sleep 1000 </dev/null >/dev/null 2>&1 &)
while [ "$(grep -al "MARK=$MARK" /proc/[0-9]*/environ 2>/dev/null | wc -l)" -lt 12 ]; do :; done
