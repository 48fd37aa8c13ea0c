# Makes the authority, the certificate of a node that is dispatcher and agent, and that of the site.
set -eu
watari pki init --dir pki
watari pki issue a1 --role dispatcher --role agent --dir pki
openssl req -x509 -newkey rsa:2048 -nodes -keyout site.key -out site.pem -days 30 -subj /CN=site.example \
    -addext subjectAltName=DNS:site.example 2>/dev/null
chmod 600 site.key
cat site.pem site.key >site-and-key.pem
