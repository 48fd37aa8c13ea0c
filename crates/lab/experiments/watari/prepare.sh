# Makes the cluster's authority, certificates of its nodes, and the certificate of the site.
set -eu
watari pki init --dir pki
for node in d1 d2; do watari pki issue $node --role dispatcher --dir pki; done
for node in a1 a2 a3; do watari pki issue $node --role agent --dir pki; done
openssl req -x509 -newkey ${key} -nodes -keyout site.key -out site.pem -days 30 -subj /CN=site.example \
    -addext subjectAltName=DNS:site.example
chmod 600 site.key
cat site.pem site.key >site-and-key.pem
