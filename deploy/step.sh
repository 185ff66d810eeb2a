#!/bin/bash
# Runs one long step of a Makefile and tells of it: what is done now, how long it usually takes, how long it took so far. On a terminal one
# living line, in a log plain lines. What the step prints goes to target/steps; if it fails, the end of that is shown and where the
# rest is.
#
#   deploy/step.sh NAME WHAT USUALLY COMMAND...
set -u

name=$1 what=$2 usually=$3
shift 3
log=target/steps/$name.log
mkdir -p "${log%/*}"
: >"$log"

living=""
[ -t 1 ] && [ "${TERM:-dumb}" != dumb ] && living=yes

spent() { # seconds since the begin, as people say it
    local s=$SECONDS
    if [ "$s" -lt 120 ]; then echo "$s s"; else echo "$((s / 60)) min $((s % 60)) s"; fi
}
# What the step said last, e.g. the crate that cargo compiles.
now() { tail -n 1 "$log" 2>/dev/null | tr -d '\r\033' | sed 's/^ *//' | cut -c 1-60; }
clear_line() { [ -z "$living" ] || printf '\r\033[K'; }

# A group of its own, so that all of it can be ended; sudo could not ask for a password there, so that make asks before.
set -m
SECONDS=0
step=""
# Before the step begins: whoever is interrupted between the two would end and leave it behind.
stop() {
    step=${step:-${!:-}}
    if [ -n "$step" ]; then
        kill -TERM -- "-$step" 2>/dev/null
        wait "$step" 2>/dev/null
    fi
    clear_line
    echo "$what: interrupted after $(spent) (what it said: $log)" >&2
    exit 130
}
trap stop INT TERM HUP
"$@" >"$log" 2>&1 </dev/null &
step=$!

told=0
while kill -0 "$step" 2>/dev/null; do
    if [ -n "$living" ]; then
        columns=$(tput cols 2>/dev/null || echo 80)
        line="$what … $(spent) (usually $usually)  $(now)"
        printf '\r%s\033[K' "${line:0:$((columns - 1))}"
    elif [ "$told" -eq 0 ] && [ "$SECONDS" -ge 2 ]; then
        echo "$what … (usually $usually)"
        told=30
    elif [ "$told" -gt 0 ] && [ "$SECONDS" -ge "$told" ]; then
        echo "$what … $(spent) so far (usually $usually)  $(now)"
        told=$((told + 30))
    fi
    # Quick for what is quick: a step that has nothing to do is over at the first look.
    if [ "$SECONDS" -lt 2 ]; then sleep 0.1; else sleep 0.5; fi
done
wait "$step"
status=$?
clear_line
if [ "$status" -ne 0 ]; then
    tail -n 25 "$log" >&2
    echo "$what: failed after $(spent), status $status" >&2
    echo "  the whole output: $log" >&2
    exit "$status"
fi
[ "$SECONDS" -lt 2 ] || echo "$what: $(spent)"
