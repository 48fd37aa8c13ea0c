# sending.sh    prints the number of this machine's connections that have data to send.
ss -Hnt state established | awk '$2 > 0 { count++ } END { print count + 0 }'
