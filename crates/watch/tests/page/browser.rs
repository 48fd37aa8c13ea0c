//! Drives a real Chromium with the Chrome `DevTools` Protocol over a WebSocket.
//!
//! A browser driver would bring more dependencies than the ten commands here need, and show less: it lacks the console,
//! the dark color scheme, and the screen size of a phone.

use std::env;
use std::io::{self, BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use tempfile::TempDir;
use tungstenite::{Message, WebSocket};

/// Longer than any test takes, on any machine.
pub(crate) const LONG: Duration = Duration::from_mins(1);
/// The interval of checks.
const PAUSE: Duration = Duration::from_millis(20);
const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// A browser with one page.
pub(crate) struct Browser {
    socket: WebSocket<TcpStream>,
    session: String,
    asked: u64,
    /// Exceptions, console errors, and policy violations.
    complaints: Vec<String>,
    process: Process,
}

/// Ends with its owner.
struct Process {
    child: Child,
    _profile: TempDir,
}

impl Browser {
    /// Starts a browser. `None` if none is installed; continuous integration must have one.
    pub(crate) fn launch() -> Option<Self> {
        let Some(program) = program() else {
            assert!(env::var_os("CI").is_none(), "no Chromium: `scripts/deps test` installs it");
            // Not by `eprintln!`, because the test harness captures its output in tests that pass.
            let mut terminal = io::stderr();
            writeln!(terminal, "SKIPPED: no Chromium here; `scripts/deps test` installs it").unwrap();
            return None;
        };
        let (process, url) = start(&program);
        let address = url.trim_start_matches("ws://").split('/').next().unwrap();
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        let (socket, _) = tungstenite::client(&*url, stream).unwrap();
        let mut browser = Self { socket, session: String::new(), asked: 0, complaints: Vec::new(), process };
        browser.attach();
        Some(browser)
    }

    /// Opens another tab of the same profile, for the next commands. Returns the previous tab, for
    /// [`Browser::turn_to`].
    pub(crate) fn open_tab(&mut self) -> String {
        let before = std::mem::take(&mut self.session);
        self.attach();
        before
    }

    /// Switches to this tab for the next commands. Returns the previous one.
    pub(crate) fn turn_to(&mut self, tab: String) -> String {
        std::mem::replace(&mut self.session, tab)
    }

    /// Closes this tab. Switch to another one after that.
    pub(crate) fn close_tab(&mut self) {
        self.command("Page.close", &json!({}));
        self.session.clear();
    }

    fn attach(&mut self) {
        let target = self.command("Target.createTarget", &json!({ "url": "about:blank" }))["targetId"].clone();
        let attached = self.command("Target.attachToTarget", &json!({ "targetId": target, "flatten": true }));
        attached["sessionId"].as_str().unwrap().clone_into(&mut self.session);
        for domain in ["Page", "Runtime", "Log"] {
            self.command(&format!("{domain}.enable"), &json!({}));
        }
        self.resize(1280, 1000);
    }

    /// Opens a URL.
    pub(crate) fn open(&mut self, url: &str) {
        let answer = self.command("Page.navigate", &json!({ "url": url }));
        assert!(answer.get("errorText").is_none(), "{answer}");
    }

    /// The value of an expression in the page.
    pub(crate) fn eval(&mut self, expression: &str) -> Value {
        self.try_eval(expression).unwrap_or_else(|error| panic!("{expression}: {error}"))
    }

    /// The value of an expression in the page. Fails while the browser goes to another page.
    fn try_eval(&mut self, expression: &str) -> Result<Value, Value> {
        let asked = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let answer = self.try_command("Runtime.evaluate", &asked)?;
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer}");
        Ok(answer["result"]["value"].clone())
    }

    /// Reloads the page.
    pub(crate) fn reload(&mut self) {
        self.eval("window.isOld = true");
        self.command("Page.reload", &json!({}));
        self.wait("!window.isOld && document.readyState === 'complete'");
    }

    pub(crate) fn text(&mut self, selector: &str) -> String {
        let selector = Value::from(selector);
        let text = self.eval(&format!("document.querySelector({selector})?.innerText"));
        text.as_str().unwrap_or_default().replace('\u{a0}', " ")
    }

    pub(crate) fn count(&mut self, selector: &str) -> u64 {
        let selector = Value::from(selector);
        self.eval(&format!("document.querySelectorAll({selector}).length")).as_u64().unwrap()
    }

    /// Waits until an expression is true.
    pub(crate) fn wait(&mut self, expression: &str) {
        let begun = Instant::now();
        while !self.try_eval(&format!("!!({expression})")).is_ok_and(|is_so| is_so == true) {
            if begun.elapsed() > LONG {
                let page = self.eval("document.body.innerText");
                panic!("never: {expression}\n{page}\n{:?}", self.complaints);
            }
            thread::sleep(PAUSE);
        }
    }

    /// Waits until the text of an element contains `part`.
    pub(crate) fn wait_text(&mut self, selector: &str, part: &str) {
        let (selector, part) = (Value::from(selector), Value::from(part));
        self.wait(&format!("document.querySelector({selector})?.innerText.includes({part})"));
    }

    /// Presses and releases a key.
    pub(crate) fn press(&mut self, key: &str) {
        let (code, number, text) = match key {
            "Enter" => (key, 13, "\r"),
            " " => ("Space", 32, " "),
            "Tab" => (key, 9, ""),
            "Escape" => (key, 27, ""),
            "ArrowDown" => (key, 40, ""),
            "ArrowUp" => (key, 38, ""),
            "Home" => (key, 36, ""),
            "End" => (key, 35, ""),
            "/" => ("Slash", 191, "/"),
            other => (other, 0, other),
        };
        for kind in ["keyDown", "keyUp"] {
            let text = if kind == "keyDown" { text } else { "" };
            let event = json!({
                "type": kind, "key": key, "code": code, "windowsVirtualKeyCode": number, "text": text,
            });
            self.command("Input.dispatchKeyEvent", &event);
        }
    }

    /// Emulates a window, or a phone, of this size.
    pub(crate) fn resize(&mut self, width: u32, height: u32) {
        let is_phone = width < 600;
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_phone });
        self.command("Emulation.setDeviceMetricsOverride", &size);
    }

    /// Emulates the preference for `dark` or `light`.
    pub(crate) fn prefer(&mut self, scheme: &str) {
        let features = json!([
            { "name": "prefers-color-scheme", "value": scheme },
            { "name": "prefers-reduced-motion", "value": "reduce" },
        ]);
        self.command("Emulation.setEmulatedMedia", &json!({ "features": features }));
    }

    /// The whole page, as PNG.
    pub(crate) fn picture(&mut self) -> Vec<u8> {
        let size = self.command("Page.getLayoutMetrics", &json!({}))["cssContentSize"].clone();
        let clip = json!({ "x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1 });
        let asked = json!({ "captureBeyondViewport": true, "clip": clip });
        let taken = self.command("Page.captureScreenshot", &asked);
        BASE64.decode(taken["data"].as_str().unwrap()).unwrap()
    }

    /// The complaints for which `is_expected` is false.
    pub(crate) fn complaints(&mut self, is_expected: impl Fn(&str) -> bool) -> Vec<String> {
        // The answer comes after all earlier events.
        self.eval("0");
        self.complaints.iter().filter(|complaint| !is_expected(complaint)).cloned().collect()
    }

    /// Fails if there are complaints.
    pub(crate) fn is_content(&mut self) {
        assert_eq!(self.complaints(|_| false), Vec::<String>::new());
    }

    fn command(&mut self, method: &str, params: &Value) -> Value {
        self.try_command(method, params).unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    fn try_command(&mut self, method: &str, params: &Value) -> Result<Value, Value> {
        self.asked += 1;
        let mut command = json!({ "id": self.asked, "method": method, "params": params });
        if !self.session.is_empty() {
            command["sessionId"] = self.session.clone().into();
        }
        self.socket.send(Message::text(command.to_string())).unwrap();
        loop {
            let message = self.socket.read().unwrap_or_else(|error| panic!("{method}: {error}"));
            let Message::Text(text) = message else { continue };
            let said: Value = serde_json::from_str(&text).unwrap();
            if said["id"] == self.asked {
                return said.get("error").map_or_else(|| Ok(said["result"].clone()), |error| Err(error.clone()));
            }
            self.note(&said);
        }
    }

    fn note(&mut self, event: &Value) {
        let params = &event["params"];
        let is_bad = match event["method"].as_str().unwrap_or_default() {
            "Runtime.exceptionThrown" => true,
            "Runtime.consoleAPICalled" => matches!(params["type"].as_str(), Some("error" | "warning" | "assert")),
            "Log.entryAdded" => matches!(params["entry"]["level"].as_str(), Some("error" | "warning")),
            _ => false,
        };
        if is_bad {
            self.complaints.push(params.to_string());
        }
    }
}

fn program() -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let directories: Vec<_> = env::split_paths(&path).collect();
    let places = NAMES.iter().flat_map(|name| directories.iter().map(move |directory| directory.join(name)));
    places.into_iter().find(|place| place.is_file())
}

/// Starts the browser, and reads the URL of its debugging port.
fn start(program: &PathBuf) -> (Process, String) {
    let profile = tempfile::tempdir().unwrap();
    let mut command = Command::new(program);
    // The content comes from this test. A sandbox, which root and containers often cannot have, would protect nothing.
    command
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--mute-audio", "--hide-scrollbars"])
        .args(["--remote-debugging-port=0", "about:blank"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let process = Process { child, _profile: profile };
    let (sender, receiver) = mpsc::channel();
    // Reads to the end, because a browser with a full stderr pipe blocks.
    thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            if let Some(url) = line.strip_prefix("DevTools listening on ") {
                let _ = sender.send(url.trim().to_owned());
            }
        }
    });
    let url = receiver.recv_timeout(LONG).expect("Chromium does not say where it listens");
    (process, url)
}

impl Drop for Browser {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("complaints: {:#?}", self.complaints);
        }
        // On this request it ends its helper processes, too.
        self.asked += 1;
        let close = json!({ "id": self.asked, "method": "Browser.close" });
        if self.socket.send(Message::text(close.to_string())).is_ok() {
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_secs(5) && matches!(self.process.child.try_wait(), Ok(None)) {
                thread::sleep(PAUSE);
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
