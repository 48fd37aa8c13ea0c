//! A network namespace of its own for a test: no other traffic, and all ports free.

use std::env;
use std::io::{self, Write};
use std::process::Command;

/// Set in the process inside the namespace, with the test's name.
const INSIDE: &str = "WATARI_TEST_INSIDE";

/// Runs `test`, the calling test, once more in a user and network namespace of its own, as root there. In that run it
/// returns true, and the test continues. Only the loopback interface is there, and it is down.
#[allow(clippy::unwrap_used, reason = "only tests call it")]
pub fn is_inside(test: &str) -> bool {
    if env::var(INSIDE).is_ok_and(|inside| inside == test) {
        return true;
    }
    let output = Command::new("unshare")
        .args(["--map-root-user", "--net", "--"])
        .arg(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--include-ignored"])
        .env(INSIDE, test)
        .output()
        .unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    // Passes on the measurements.
    io::stdout().write_all(said.as_bytes()).unwrap();
    false
}
