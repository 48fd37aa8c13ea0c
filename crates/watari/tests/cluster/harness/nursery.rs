//! Starts processes that end with this one, however it ends.

use std::io;
use std::process::{Child, Command};
use std::sync::LazyLock;
use std::sync::mpsc::{Sender, channel};
use std::thread;

struct Order {
    command: Command,
    answer: Sender<io::Result<Child>>,
}

/// `watari run --with-parent` ends when the *thread* that started it ends, and each test has a thread of its own. So
/// one thread that lives as long as the process starts all of them.
static NURSERY: LazyLock<Sender<Order>> = LazyLock::new(|| {
    let (orders, inbox) = channel::<Order>();
    thread::spawn(move || {
        for Order { mut command, answer } in inbox {
            // The thread that ordered it may have stopped waiting.
            let _ = answer.send(command.spawn());
        }
    });
    orders
});

/// Starts `command`.
pub(crate) fn start(command: Command) -> Child {
    let (answer, started) = channel();
    NURSERY.send(Order { command, answer }).expect("the nursery lasts");
    started.recv().expect("the nursery answers").unwrap_or_else(|error| panic!("cannot start a process: {error}"))
}
