//! The page's own tests: its types and its computations.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than npm takes, with a slow network.
const LONG: Duration = Duration::from_mins(5);

#[test]
fn types_and_logic_of_the_page_hold() {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    // Another run of this test may use the same directory.
    let ours = fs::File::create(target.join("page.lock")).unwrap();
    ours.lock().unwrap();
    let page = target.join("page");
    copy_sources(&page);
    let lock = fs::read(page.join("package-lock.json")).unwrap();
    let installed = page.join("node_modules/.installed");
    if !fs::read(&installed).is_ok_and(|installed| installed == lock) {
        npm(&page, &["ci"]);
        fs::write(installed, lock).unwrap();
    }
    npm(&page, &["run", "check"]);
    npm(&page, &["test"]);
}

/// Copies the sources beside their tests, so that nothing is written to the source tree.
fn copy_sources(page: &Path) {
    for part in ["src", "test"] {
        if page.join(part).exists() {
            fs::remove_dir_all(page.join(part)).unwrap();
        }
        fs::create_dir_all(page.join(part)).unwrap();
    }
    let from = Path::new("page");
    for name in [".npmrc", "package.json", "package-lock.json", "tsconfig.json", "build.mjs"] {
        fs::copy(from.join(name), page.join(name)).unwrap();
    }
    for part in ["src", "test"] {
        for entry in fs::read_dir(from.join(part)).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), page.join(part).join(entry.file_name())).unwrap();
        }
    }
}

fn npm(page: &Path, arguments: &[&str]) {
    let said = fs::File::create(page.join("said")).unwrap();
    let mut command = Command::new("npm");
    command.args(arguments).current_dir(page).stdin(Stdio::null());
    command.stderr(said.try_clone().unwrap()).stdout(said);
    let mut child = command.spawn().expect("npm is there: scripts/deps installs it");
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status.success();
        }
        if begun.elapsed() > LONG {
            child.kill().unwrap();
            child.wait().unwrap();
            break false;
        }
        thread::sleep(Duration::from_millis(20));
    };
    assert!(status, "npm {arguments:?}:\n{}", fs::read_to_string(page.join("said")).unwrap());
}
