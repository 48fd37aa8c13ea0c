#![allow(clippy::unwrap_used)]

use super::*;

fn frame(ethertype: [u8; 2], head: &[u8], ports: [u16; 2]) -> Vec<u8> {
    let mut frame = vec![7; 12];
    frame.extend_from_slice(&ethertype);
    frame.extend_from_slice(head);
    for port in ports {
        frame.extend_from_slice(&port.to_be_bytes());
    }
    frame.resize(frame.len() + 16, 0);
    frame
}

#[test]
fn a_frame_names_its_flow() {
    let mut v4 = [0; 24];
    (v4[0], v4[9]) = (0x46, TCP);
    v4[12..20].copy_from_slice(&[192, 0, 2, 9, 192, 0, 2, 100]);
    let found = flow_of(&frame([8, 0], &v4, [5000, 443])).unwrap();
    assert_eq!(found.to_string(), "192.0.2.9:5000 to 192.0.2.100:443");
    let mut v6 = [0; 40];
    v6[6] = TCP;
    (v6[23], v6[39]) = (1, 2);
    let found = flow_of(&frame([0x86, 0xdd], &v6, [5000, 443])).unwrap();
    assert_eq!(found.to_string(), "[::1]:5000 to [::2]:443");
    // Another protocol, a later fragment, and frames that are too short.
    let mut other = v4;
    other[9] = 17;
    assert_eq!(flow_of(&frame([8, 0], &other, [5000, 443])), None);
    v4[7] = 1;
    assert_eq!(flow_of(&frame([8, 0], &v4, [5000, 443])), None);
    v6[6] = 17;
    assert_eq!(flow_of(&frame([0x86, 0xdd], &v6, [5000, 443])), None);
    v6[6] = TCP;
    let whole = frame([0x86, 0xdd], &v6, [5000, 443]);
    for len in 0..ETHERNET_LEN + 44 {
        assert_eq!(flow_of(&whole[..len]), None);
    }
}

#[test]
fn a_filter_fits_the_kernel() {
    assert_eq!(filter::of_ports([]).len(), 16);
    assert_eq!(filter::of_ports([1, 2, 2]).len(), 20);
    assert!(filter::of_ports(0..2040).len() <= 4096);
    assert_eq!(filter::of_ports(0..u16::MAX).len(), 16);
}
