//! A plain HTTP server that serves a directory, and answers uploads with their SHA-256.

use std::convert::Infallible;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{Context, SHA256};
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use watari_body::Body;
use watari_files::{Files, Metrics};

use crate::output::print_line;
use crate::process::EndSignals;

/// Serves `root` on `listen` until SIGTERM or SIGINT.
pub(crate) async fn run(root: &Path, listen: SocketAddr) -> io::Result<()> {
    let mut end = EndSignals::listen()?;
    let files = Arc::new(Files::open(root, Metrics::default())?);
    let listener = TcpListener::bind(listen).await?;
    writeln!(io::stdout(), "{}", listener.local_addr()?)?;
    tokio::select! {
        () = accept(&listener, &files) => {}
        _ = end.next() => {}
    }
    Ok(())
}

async fn accept(listener: &TcpListener, files: &Arc<Files>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(converse(stream, Arc::clone(files)));
            }
            Err(error) => {
                print_line(format_args!("cannot accept: {error}"));
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn converse(stream: TcpStream, files: Arc<Files>) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request: Request<Incoming>| {
        let files = Arc::clone(&files);
        async move {
            let is_upload = matches!(*request.method(), Method::PUT | Method::POST);
            Ok::<_, Infallible>(if is_upload {
                digest(request).await
            } else {
                files.respond(&request.into_parts().0).await
            })
        }
    });
    let mut server = http1::Builder::new();
    if let Err(error) = server.timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service).await {
        print_line(format_args!("a connection ended: {error}"));
    }
}

/// Responds with the SHA-256 of the request's body, in hexadecimal.
async fn digest(request: Request<Incoming>) -> Response<Body> {
    let mut context = Context::new(&SHA256);
    let mut body = request.into_body();
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => context.update(frame.data_ref().map_or(&[], |data| data)),
            Err(error) => return text(StatusCode::BAD_REQUEST, format!("the body was cut short: {error}\n")),
        }
    }
    text(StatusCode::OK, hex(context.finish().as_ref()) + "\n")
}

/// Bytes in hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0x0f]);
    digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect()
}

fn text(status: StatusCode, text: String) -> Response<Body> {
    let mut response = Response::new(watari_body::full(text));
    *response.status_mut() = status;
    response
}
