//! The PROXY protocol, by which a relay reports the addresses of the connection that it relays.
//!
//! Reads versions 1 and 2, and writes version 2, for TCP over IPv4 and IPv6 only. Sections below are those of the
//! specification (<https://www.haproxy.org/download/2.8/doc/proxy-protocol.txt>).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// The length of signature, version and command, family and protocol, and length.
const HEAD_LEN: usize = 16;
const VERSION: u8 = 2;
const LOCAL: u8 = 0;
const PROXY: u8 = 1;
const UNSPEC: u8 = 0x00;
const TCP4: u8 = 0x11;
const TCP6: u8 = 0x21;

const TEXT_SIGNATURE: [u8; 6] = *b"PROXY ";
/// The longest version 1 line with its CRLF, in bytes (section 2.1).
const TEXT_LEN_MAX: usize = 107;

/// A relay's description of the connection that it relays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Header {
    /// The relay opened the connection for itself, for example for a health check. The connection's own addresses
    /// apply.
    Local,
    /// The relay does not have the addresses, or relays no TCP connection. The connection's own addresses apply.
    Unspecified,
    Tcp {
        /// The source address.
        client: SocketAddr,
        /// The destination address.
        server: SocketAddr,
        /// Additional values of the relay, in order. Empty in version 1.
        tlvs: Vec<Tlv>,
    },
}

/// A type-length-value (section 2.2.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tlv {
    /// The type. 0xE0 to 0xEF are for private use.
    pub kind: u8,
    /// The value. All of the header after its first 16 bytes has at most 65,535 bytes.
    pub value: Vec<u8>,
}

/// The bytes are no acceptable PROXY protocol header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProxyError {
    /// The first bytes are not the signature of either version.
    #[error("no PROXY protocol header")]
    NotProxy,
    /// The header is longer than the caller or the protocol allows.
    #[error("a PROXY protocol header of {len} bytes or more, where {limit} are allowed")]
    TooLong {
        /// The length in bytes, as far as the header shows it.
        len: usize,
        /// The limit, in bytes.
        limit: usize,
    },
    /// A binary header of a version other than 2.
    #[error("a PROXY protocol header of the unknown version {0}")]
    Version(u8),
    /// A command other than LOCAL and PROXY.
    #[error("a PROXY protocol header with the unknown command {0}")]
    Command(u8),
    /// An unsupported address family or transport. Supported are unspecified, and TCP over IPv4 and IPv6.
    #[error("a PROXY protocol header for family and transport {0:#04x}, which is not TCP")]
    Family(u8),
    /// The header ends within its addresses.
    #[error("a PROXY protocol header that ends within its addresses")]
    Addresses,
    /// The header ends within a type-length-value.
    #[error("a PROXY protocol header that ends within a type-length-value")]
    Tlv,
    /// A malformed version 1 line.
    #[error("a PROXY protocol line that is malformed")]
    Text,
}

/// Parses the header at the start of `bytes`. Returns it and its length. `None`: it is incomplete.
///
/// Refuses a header of more than `limit` bytes as soon as possible, so that the caller never stores more.
pub fn parse(bytes: &[u8], limit: usize) -> Result<Option<(Header, usize)>, ProxyError> {
    if begins_with(bytes, &SIGNATURE) {
        parse_binary(bytes, limit)
    } else if begins_with(bytes, &TEXT_SIGNATURE) {
        parse_text(bytes, limit.min(TEXT_LEN_MAX))
    } else {
        Err(ProxyError::NotProxy)
    }
}

impl Header {
    /// Appends the header in version 2.
    ///
    /// If one address is IPv4 and the other IPv6, the former is written as an IPv4-mapped IPv6 address. If the TLVs do
    /// not fit, fails and appends nothing.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), ProxyError> {
        match self {
            Self::Local => append(LOCAL, UNSPEC, &[], out),
            Self::Unspecified => append(PROXY, UNSPEC, &[], out),
            Self::Tcp { client, server, tlvs } => {
                let (family, mut body) = encode_addresses(*client, *server);
                for tlv in tlvs {
                    body.push(tlv.kind);
                    body.extend_from_slice(&len_field(tlv.value.len())?);
                    body.extend_from_slice(&tlv.value);
                }
                append(PROXY, family, &body, out)
            }
        }
    }
}

fn append(command: u8, family: u8, body: &[u8], out: &mut Vec<u8>) -> Result<(), ProxyError> {
    let len = len_field(body.len())?;
    out.extend_from_slice(&SIGNATURE);
    out.extend_from_slice(&[VERSION << 4 | command, family]);
    out.extend_from_slice(&len);
    out.extend_from_slice(body);
    Ok(())
}

fn len_field(len: usize) -> Result<[u8; 2], ProxyError> {
    let too_long = |_| ProxyError::TooLong { len, limit: u16::MAX.into() };
    u16::try_from(len).map(u16::to_be_bytes).map_err(too_long)
}

fn encode_addresses(client: SocketAddr, server: SocketAddr) -> (u8, Vec<u8>) {
    let (family, ips) = match (client.ip(), server.ip()) {
        (IpAddr::V4(client), IpAddr::V4(server)) => (TCP4, [client.octets(), server.octets()].concat()),
        (client, server) => (TCP6, [to_ipv6(client).octets(), to_ipv6(server).octets()].concat()),
    };
    (family, [&ips[..], &client.port().to_be_bytes(), &server.port().to_be_bytes()].concat())
}

fn to_ipv6(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}

/// Whether the shorter of `bytes` and `signature` is a prefix of the other.
fn begins_with(bytes: &[u8], signature: &[u8]) -> bool {
    let len = bytes.len().min(signature.len());
    bytes[..len] == signature[..len]
}

/// Section 2.2.
fn parse_binary(bytes: &[u8], limit: usize) -> Result<Option<(Header, usize)>, ProxyError> {
    let Some((head, after)) = bytes.split_first_chunk::<HEAD_LEN>() else {
        return Ok(None);
    };
    let [.., version_and_command, family, len_high, len_low] = *head;
    if version_and_command >> 4 != VERSION {
        return Err(ProxyError::Version(version_and_command >> 4));
    }
    let body_len = usize::from(u16::from_be_bytes([len_high, len_low]));
    let len = HEAD_LEN + body_len;
    if len > limit {
        return Err(ProxyError::TooLong { len, limit });
    }
    let Some(body) = after.get(..body_len) else {
        return Ok(None);
    };
    let header = match (version_and_command & 0x0f, family) {
        // The family and all that follows are ignored.
        (LOCAL, _) => Header::Local,
        (PROXY, UNSPEC) => Header::Unspecified,
        (PROXY, TCP4) => parse_body::<4>(body)?,
        (PROXY, TCP6) => parse_body::<16>(body)?,
        (PROXY, family) => return Err(ProxyError::Family(family)),
        (command, _) => return Err(ProxyError::Command(command)),
    };
    Ok(Some((header, len)))
}

/// Parses two addresses of `N` bytes, two ports, and type-length-values.
fn parse_body<const N: usize>(body: &[u8]) -> Result<Header, ProxyError>
where
    IpAddr: From<[u8; N]>,
{
    let (client, rest) = body.split_first_chunk::<N>().ok_or(ProxyError::Addresses)?;
    let (server, rest) = rest.split_first_chunk::<N>().ok_or(ProxyError::Addresses)?;
    let (ports, tlvs) = rest.split_first_chunk::<4>().ok_or(ProxyError::Addresses)?;
    let [client_port, server_port] = [[ports[0], ports[1]], [ports[2], ports[3]]].map(u16::from_be_bytes);
    Ok(Header::Tcp {
        client: SocketAddr::new((*client).into(), client_port),
        server: SocketAddr::new((*server).into(), server_port),
        tlvs: parse_tlvs(tlvs)?,
    })
}

fn parse_tlvs(mut bytes: &[u8]) -> Result<Vec<Tlv>, ProxyError> {
    let mut tlvs = Vec::new();
    while let [kind, after_kind @ ..] = bytes {
        let (len, rest) = after_kind.split_first_chunk::<2>().ok_or(ProxyError::Tlv)?;
        let (value, rest) = rest.split_at_checked(u16::from_be_bytes(*len).into()).ok_or(ProxyError::Tlv)?;
        tlvs.push(Tlv { kind: *kind, value: value.to_vec() });
        bytes = rest;
    }
    Ok(tlvs)
}

/// Section 2.1.
fn parse_text(bytes: &[u8], limit: usize) -> Result<Option<(Header, usize)>, ProxyError> {
    let within_limit = &bytes[..bytes.len().min(limit)];
    let Some(line_len) = within_limit.windows(2).position(|pair| pair == b"\r\n") else {
        let too_long = ProxyError::TooLong { len: bytes.len(), limit };
        return if bytes.len() < limit { Ok(None) } else { Err(too_long) };
    };
    let line = str::from_utf8(&bytes[..line_len]).map_err(|_| ProxyError::Text)?;
    let header = match line.split(' ').collect::<Vec<_>>()[..] {
        // All that follows UNKNOWN is ignored.
        ["PROXY", "UNKNOWN", ..] => Header::Unspecified,
        ["PROXY", "TCP4", ref fields @ ..] => parse_fields::<Ipv4Addr>(fields)?,
        ["PROXY", "TCP6", ref fields @ ..] => parse_fields::<Ipv6Addr>(fields)?,
        _ => return Err(ProxyError::Text),
    };
    Ok(Some((header, line_len + 2)))
}

fn parse_fields<Ip: FromStr + Into<IpAddr>>(fields: &[&str]) -> Result<Header, ProxyError> {
    let [client, server, client_port, server_port] = fields else {
        return Err(ProxyError::Text);
    };
    let address = |ip: &str, port: &str| {
        let ip: Ip = ip.parse().map_err(|_| ProxyError::Text)?;
        Ok(SocketAddr::new(ip.into(), parse_port(port)?))
    };
    Ok(Header::Tcp { client: address(client, client_port)?, server: address(server, server_port)?, tlvs: Vec::new() })
}

/// Parses decimal digits. Unlike `u16::from_str`, refuses a sign and leading zeros.
fn parse_port(text: &str) -> Result<u16, ProxyError> {
    let port: u16 = text.parse().map_err(|_| ProxyError::Text)?;
    if port.to_string() == text { Ok(port) } else { Err(ProxyError::Text) }
}

#[cfg(test)]
mod tests;
