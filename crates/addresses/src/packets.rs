//! Frames that announce an address, or ask for it, over Ethernet: ARP (RFC 826, RFC 5227) and neighbour discovery
//! (RFC 4861).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A link-layer address.
pub(crate) type Mac = [u8; 6];

pub(crate) const ETHERTYPE_ARP: u16 = 0x0806;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const BROADCAST: Mac = [0xff; 6];
const ETHERNET_LEN: usize = 14;
/// Ethernet (1), IPv4, six and four octets.
const ARP_HEAD: [u8; 6] = [0, 1, 8, 0, 6, 4];
const ARP_REQUEST: u16 = 1;
const ICMPV6: u8 = 58;
const NEIGHBOR_SOLICITATION: u8 = 135;
const NEIGHBOR_ADVERTISEMENT: u8 = 136;
/// "The Override flag [..] SHOULD be set" (RFC 4861, section 7.2.6).
const OVERRIDE: u8 = 0x20;
const TARGET_LINK_LAYER_ADDRESS: u8 = 2;

/// Tells all neighbours that `mac` has `address`: a gratuitous ARP request (RFC 5227, section 3), or an unsolicited
/// neighbour advertisement (RFC 4861, section 7.2.6).
pub(crate) fn announcement(mac: Mac, address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => arp_request(mac, address, address),
        IpAddr::V6(address) => {
            let mut body = vec![OVERRIDE, 0, 0, 0];
            body.extend_from_slice(&address.octets());
            body.extend_from_slice(&[TARGET_LINK_LAYER_ADDRESS, 1]);
            body.extend_from_slice(&mac);
            let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
            icmpv6(mac, address, all_nodes, NEIGHBOR_ADVERTISEMENT, &body)
        }
    }
}

/// Asks who has `address`, without a source address, so that no neighbour stores one: an ARP probe (RFC 5227, section
/// 2.1.1), or the solicitation of duplicate address detection (RFC 4862, section 5.4.2).
pub(crate) fn probe(mac: Mac, address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => arp_request(mac, Ipv4Addr::UNSPECIFIED, address),
        IpAddr::V6(address) => {
            let body = [&[0; 4][..], &address.octets()].concat();
            let [.., a, b, c] = address.octets();
            let solicited_node = Ipv6Addr::from([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c]);
            icmpv6(mac, Ipv6Addr::UNSPECIFIED, solicited_node, NEIGHBOR_SOLICITATION, &body)
        }
    }
}

/// The machine that has `address`, by a received ARP frame. A probe of another machine counts, too: both want the
/// address (RFC 5227, section 2.1.1).
pub(crate) fn arp_claim(frame: &[u8], address: Ipv4Addr, own: Mac) -> Option<Mac> {
    let arp: &[u8; 28] = frame.get(ETHERNET_LEN..)?.first_chunk()?;
    if arp[..6] != ARP_HEAD {
        return None;
    }
    let sender: Mac = arp[8..14].try_into().ok()?;
    (arp[14..18] == address.octets() && sender != own).then_some(sender)
}

/// The machine that has `address`, by a received `ICMPv6` message. Zeros: the message does not say which.
pub(crate) fn neighbour_claim(message: &[u8], address: Ipv6Addr, own: Mac) -> Option<Mac> {
    let (head, options) = message.split_at_checked(24)?;
    if head[0] != NEIGHBOR_ADVERTISEMENT || head[8..24] != address.octets() {
        return None;
    }
    let claimant = match options {
        [TARGET_LINK_LAYER_ADDRESS, 1, mac @ ..] => *mac.first_chunk::<6>()?,
        _ => [0; 6],
    };
    (claimant != own).then_some(claimant)
}

fn arp_request(mac: Mac, sender: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    let mut frame = ethernet(BROADCAST, mac, ETHERTYPE_ARP);
    frame.extend_from_slice(&ARP_HEAD);
    frame.extend_from_slice(&ARP_REQUEST.to_be_bytes());
    frame.extend_from_slice(&mac);
    frame.extend_from_slice(&sender.octets());
    frame.extend_from_slice(&[0; 6]);
    frame.extend_from_slice(&target.octets());
    frame
}

/// To a multicast address. Hop limit 255, or receivers drop it (RFC 4861, section 7.1).
fn icmpv6(mac: Mac, source: Ipv6Addr, destination: Ipv6Addr, kind: u8, body: &[u8]) -> Vec<u8> {
    let [.., a, b, c, d] = destination.octets();
    let mut frame = ethernet([0x33, 0x33, a, b, c, d], mac, ETHERTYPE_IPV6);
    let len = u16::try_from(body.len() + 4).expect("a message is short");
    frame.extend_from_slice(&[0x60, 0, 0, 0]);
    frame.extend_from_slice(&len.to_be_bytes());
    frame.extend_from_slice(&[ICMPV6, 255]);
    frame.extend_from_slice(&source.octets());
    frame.extend_from_slice(&destination.octets());
    let message = [&[kind, 0, 0, 0][..], body].concat();
    let pseudo_header =
        [&source.octets()[..], &destination.octets(), &u32::from(len).to_be_bytes(), &[0, 0, 0, ICMPV6]];
    let checksum = checksum(&[&pseudo_header.concat()[..], &message].concat());
    frame.extend_from_slice(&message[..2]);
    frame.extend_from_slice(&checksum.to_be_bytes());
    frame.extend_from_slice(&message[4..]);
    frame
}

fn ethernet(destination: Mac, source: Mac, kind: u16) -> Vec<u8> {
    [&destination[..], &source, &kind.to_be_bytes()].concat()
}

/// RFC 1071. `bytes` has an even length.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).expect("it was folded")
}

#[cfg(test)]
mod tests;
