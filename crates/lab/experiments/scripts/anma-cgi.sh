# Lets the server run the script.
set -eu
chmod 755 www/cgi-bin/print
