# The node's certificates, and the files of the site: those that the program rewrites have lines of 100 octets.
set -eu
sh prepare.sh
chmod 755 page.pl
for kb in 50 100 150 200; do
    base64 -w 99 noise | head -c "$kb"000 >data/file-$kb
    # The program and its file in turn, without TLS and with it.
    for tls in 0 1; do printf -- '- /page %s\n- /file-%s %s\n' $tls $kb $tls >mixed-$kb-$tls.list; done
done
head -c 2048 noise >data/short
cp data/short data/long
chmod 777 data
chmod 666 data/*
