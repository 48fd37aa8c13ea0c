# listening.sh ADDRESS    succeeds when a process of this host listens there: nothing is sent
ss -Hltn "src $1" | grep -q LISTEN
