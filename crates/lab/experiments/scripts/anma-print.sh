#!/bin/sh
# A script that prints a file of the site.
echo Content-Type: application/octet-stream
echo
exec cat "${work}/www/$QUERY_STRING"
