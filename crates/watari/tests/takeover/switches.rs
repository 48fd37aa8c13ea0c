//! Planned switches under load: connections change their dispatcher with the address.

use std::fs;
use std::io::Read;
use std::process::{Child, Command, Stdio};

use watari_test_origins::namespace::is_inside;

use crate::lab::{HOST, Lab, PLAN, Plan, V4, V6, stdout, until};

const SWITCHES: usize = 20;
/// Requests of each keep-alive connection, ten in a second.
const REQUESTS: usize = 120;

/// Downloads and keep-alive connections of both TLS versions and IP versions go on through 20 switches.
#[test]
fn connections_go_on() {
    if !is_inside("switches::connections_go_on") {
        return;
    }
    let lab = Lab::start(&Plan { keys: "preempt = false", ..PLAN });
    let bytes: Vec<u8> = (0..3_u32 << 20).flat_map(u32::to_le_bytes).collect();
    fs::write(lab.dir().join("www/large"), &bytes).unwrap();
    let downloads = [
        (V4, &["--http1.1"][..]),
        (V4, &["--http1.1", "--tls-max", "1.2"]),
        (V4, &["--http2"]),
        (V6, &["--http1.1"]),
        (V6, &["--http2", "--tls-max", "1.2"]),
    ];
    let mut downloads: Vec<_> = (0..)
        .zip(downloads)
        .map(|(number, (address, options))| {
            let file = lab.dir().join(format!("downloaded{number}"));
            let mut command = curl(&lab, address, "large");
            command.args(options).args(["--limit-rate", "1M", "--output"]).arg(&file);
            (file, Client::start(command))
        })
        .collect();
    let keep_alive = [(V4, "--http1.1"), (V4, "--http2"), (V6, "--http1.1")];
    let mut keep_alive = keep_alive.map(|(address, version)| {
        let mut command = curl(&lab, address, &format!("?[1-{REQUESTS}]"));
        command.args([version, "--rate", "10/s", "--output", "/dev/null", "--write-out"]);
        command.arg("%{http_code} %{num_connects} %{time_total}\n").stdout(Stdio::piped());
        Client::start(command)
    });
    until("the downloads run", || downloads.iter().all(|(file, _)| file.exists()));
    for number in 0..SWITCHES {
        let (from, to) = if number % 2 == 0 { ("d1", "d2") } else { ("d2", "d1") };
        let ordered = lab.ctl(from, &["switch", to]);
        assert!(ordered.status.success(), "{}", String::from_utf8_lossy(&ordered.stderr));
        lab.until_owner(to);
    }
    assert!(downloads.iter_mut().any(|(_, child)| !child.has_ended()), "the downloads are too short for this test");
    until("all clients have ended", || {
        downloads.iter_mut().map(|(_, child)| child).chain(&mut keep_alive).all(Client::has_ended)
    });
    for (file, child) in &mut downloads {
        assert!(child.0.wait().unwrap().success(), "{}", file.display());
        assert!(fs::read(&file).unwrap() == bytes, "{}: other bytes", file.display());
    }
    for mut client in keep_alive {
        let mut printed = String::new();
        client.0.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
        let connects: usize =
            printed.lines().map(|line| line.split(' ').nth(1).unwrap().parse::<usize>().unwrap()).sum();
        let answered = printed.lines().filter(|line| line.starts_with("200 ")).count();
        assert_eq!((client.0.wait().unwrap().success(), connects, answered), (true, 1, REQUESTS), "{printed}");
    }
    let counted = |node: &str, name: &str| {
        let metrics = lab.command(node, "curl").args(["--silent", "http://127.0.0.1:9001/metrics"]).output().unwrap();
        let value = |line: &str| Some(line.strip_prefix(&format!("watari_dispatcher_{name}_total "))?.parse().unwrap());
        stdout(&metrics).lines().find_map(value).unwrap_or(0_u64)
    };
    let [given, taken, reset] = ["connections_given", "connections_taken", "connections_not_given"]
        .map(|name| counted("d1", name) + counted("d2", name));
    assert!(given >= 8 * 5, "{given} were given");
    assert_eq!((taken, reset), (given, 0));
    lab.end();
}

/// A program that ends with this value.
struct Client(Child);

impl Client {
    fn start(mut command: Command) -> Self {
        Self(command.spawn().unwrap())
    }

    fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// curl, for a file of the site at `address`.
fn curl(lab: &Lab, address: &str, file: &str) -> Command {
    let host = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
    let mut command = Command::new("curl");
    command.current_dir(lab.dir()).args(["--silent", "--show-error", "--fail", "--max-time", "35"]);
    command.args([
        "--cacert",
        "site.pem",
        "--resolve",
        &format!("{HOST}:443:{host}"),
        &format!("https://{HOST}/{file}"),
    ]);
    command.stdin(Stdio::null());
    command
}
