vcl 4.1;
backend default {
    .host = "${origin-ip}";
    .port = "8080";
    ${backend}
}
