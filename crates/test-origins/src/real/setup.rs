//! The tested configurations.

use super::{Docroot, Running, Server, StartError};

/// A server with a configuration beyond the minimum.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    pub server: Server,
    /// Its name in `docs/origins.md`.
    pub configuration: &'static str,
    lines: &'static str,
}

impl Setup {
    /// All setups, in the order of `docs/origins.md`.
    pub const ALL: &[Self] = &[
        setup(Server::Apache, "as it comes", ""),
        setup(Server::Apache, "`FileETag INode MTime Size`", "FileETag INode MTime Size"),
        setup(Server::Apache, "`FileETag None`", "FileETag None"),
        setup(Server::Apache, "compresses", APACHE_COMPRESSES),
        setup(Server::Nginx, "as it comes", ""),
        setup(Server::Nginx, "`etag off`", "etag off;"),
        setup(Server::Nginx, "compresses", "gzip on; gzip_types *;"),
        setup(Server::Lighttpd, "as it comes, unknown type", ""),
        setup(Server::Lighttpd, "as it comes, known type", LIGHTTPD_TYPES),
        setup(Server::Lighttpd, "`etag.use-inode = \"disable\"`", LIGHTTPD_WITHOUT_INODE),
        setup(Server::Caddy, "as it comes", ""),
        setup(Server::Caddy, "compresses", "encode gzip"),
        setup(Server::H2o, "as it comes", ""),
        setup(Server::H2o, "compresses", "compress: ON"),
        setup(Server::Varnish, "before nginx", ""),
        setup(Server::Squid, "before nginx", ""),
        setup(Server::TrafficServer, "before nginx", ""),
    ];

    /// Starts it as [`Server::start`] does.
    pub fn start(&self, root: &Docroot) -> Result<Running, StartError> {
        self.server.start(root, self.lines)
    }
}

const fn setup(server: Server, configuration: &'static str, lines: &'static str) -> Setup {
    Setup { server, configuration, lines }
}

const APACHE_COMPRESSES: &str = "LoadModule filter_module /usr/lib/apache2/modules/mod_filter.so
    LoadModule deflate_module /usr/lib/apache2/modules/mod_deflate.so
    SetOutputFilter DEFLATE";

const LIGHTTPD_TYPES: &str = "mimetype.assign = (\"\" => \"text/plain\")";

const LIGHTTPD_WITHOUT_INODE: &str = "mimetype.assign = (\"\" => \"text/plain\")
    etag.use-inode = \"disable\"";
