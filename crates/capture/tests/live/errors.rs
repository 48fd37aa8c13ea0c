//! Error messages.

use std::os::unix::process::CommandExt;
use std::process::Command;

use watari_capture::{CaptureError, Options, open};

use crate::network::{Peer, alone, ip};

fn error(interface: &str, filter: Option<&str>) -> CaptureError {
    open(&Options { filter: filter.map(str::to_owned), ..Options::new(interface) }).unwrap_err()
}

#[test]
fn interfaces_that_are_not_there_or_not_up() {
    alone("errors::interfaces_that_are_not_there_or_not_up", || {
        let _peer = Peer::connect();
        let text = error("eth9", None).to_string();
        assert_eq!(text, "there is no interface eth9, the existing ones are a0, any, lo");
        ip("link set a0 down");
        let down = error("a0", None);
        assert!(matches!(down, CaptureError::Open { .. }), "{down:?}");
        assert!(
            down.to_string().starts_with("cannot capture on a0: ") && down.to_string().contains("not up"),
            "{down}"
        );
    });
}

#[test]
fn filters_that_are_none() {
    alone("errors::filters_that_are_none", || {
        for filter in ["tcp prot 80", "port ssh and", "host 300.1.1.1"] {
            let wrong = error("lo", Some(filter));
            assert!(matches!(wrong, CaptureError::Filter { .. }), "{wrong:?}");
            let text = wrong.to_string();
            assert!(text.starts_with(&format!("the filter `{filter}` cannot be used on lo: ")), "{text}");
            eprintln!("{text}");
        }
    });
}

#[test]
fn an_interface_that_goes_away() {
    alone("errors::an_interface_that_goes_away", || {
        let _peer = Peer::connect();
        let mut ring = crate::seen::on("a0", "tcp").remove(0);
        ip("link del a0");
        let begun = std::time::Instant::now();
        let error = loop {
            if let Err(error) = ring.next() {
                break error;
            }
            assert!(begun.elapsed() < crate::seen::DEADLINE);
        };
        assert!(error.to_string().starts_with("the capture on a0 failed: "), "{error}");
        eprintln!("{error}");
    });
}

/// The process is root in its user namespace, and has no rights in the network's.
#[test]
fn without_the_capability() {
    const INSIDE: &str = "WATARI_CAPTURE_UNPRIVILEGED";
    if std::env::var_os(INSIDE).is_some() {
        let refused = error("lo", None);
        assert!(matches!(refused, CaptureError::NotPermitted { .. }), "{refused:?}");
        assert!(refused.to_string().contains("setcap cap_net_raw+ep"), "{refused}");
        return;
    }
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", "errors::without_the_capability", "--nocapture"]).env(INSIDE, "1");
    if nix::unistd::geteuid().is_root() {
        again.uid(65_534);
    }
    let output = again.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
