//! The lines of a terminal that show the view.

use std::io::{self, IsTerminal, Stdout};
use std::panic;
use std::time::Duration;

use ratatui::backend::{Backend, ClearType, CrosstermBackend};
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{disable_raw_mode, enable_raw_mode};
use ratatui::layout::Position;
use ratatui::{Terminal, TerminalOptions, Viewport};
use rustix::process::getpgrp;
use rustix::termios::tcgetpgrp;

use crate::view::{HEIGHT, View};

/// Lines of the terminal on the standard output, below its previous content. Dropping this value removes the view, and
/// the next output appears in its place.
///
/// Meanwhile the terminal sends each key when it is pressed, including Ctrl-C. [`Screen::is_end_wanted`] reads them.
#[derive(Debug)]
pub struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    /// The position of the first line.
    origin: Position,
    /// Leaves raw mode after the other fields are dropped.
    _raw: RawMode,
}

/// The terminal does not support an operation.
#[derive(Debug, thiserror::Error)]
#[error("the terminal cannot show the view: {0}")]
pub struct ScreenError(#[from] io::Error);

impl Screen {
    /// Whether a view can be shown: the standard output is a terminal that can move its cursor, and this process is in
    /// its foreground. The system stops background processes that change the terminal.
    pub fn is_possible() -> bool {
        let able = std::env::var_os("TERM").is_some_and(|name| name != "dumb");
        let foreground = || tcgetpgrp(io::stdout()).is_ok_and(|group| group == getpgrp());
        able && io::stdout().is_terminal() && io::stdin().is_terminal() && foreground()
    }

    /// Reserves the lines. Asks the terminal for its cursor position, and fails if it does not respond.
    pub fn open() -> Result<Self, ScreenError> {
        let raw = RawMode::enter()?;
        let options = TerminalOptions { viewport: Viewport::Inline(HEIGHT) };
        let mut terminal = Terminal::with_options(CrosstermBackend::new(io::stdout()), options)?;
        terminal.hide_cursor()?;
        let origin = terminal.get_frame().area().as_position();
        Ok(Self { terminal, origin, _raw: raw })
    }

    pub fn draw(&mut self, view: &View<'_>) -> Result<(), ScreenError> {
        let frame = self.terminal.draw(|frame| frame.render_widget(view, frame.area()))?;
        self.origin = frame.area.as_position();
        Ok(())
    }

    /// Whether a key was pressed that ends the run: q, Escape or Ctrl-C. Does not block.
    pub fn is_end_wanted(&self) -> Result<bool, ScreenError> {
        while event::poll(Duration::ZERO)? {
            if is_end(&event::read()?) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // The terminal now shows the message of the panic.
        if !std::thread::panicking() {
            // No action is needed if the terminal is gone.
            let _ = self.terminal.set_cursor_position(self.origin);
            let _ = self.terminal.backend_mut().clear_region(ClearType::AfterCursor);
        }
        let _ = self.terminal.show_cursor();
    }
}

/// The raw mode of the terminal. It ends when this value is dropped, and before a panic prints its message, so that the
/// message is readable.
#[derive(Debug)]
struct RawMode;

impl RawMode {
    fn enter() -> io::Result<Self> {
        enable_raw_mode()?;
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            leave();
            report(panic);
        }));
        Ok(Self)
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        leave();
    }
}

fn leave() {
    // No action is needed if the terminal is gone.
    let _ = disable_raw_mode();
    let _ = execute!(io::stdout(), Show);
}

fn is_end(event: &Event) -> bool {
    let Event::Key(KeyEvent { code, modifiers, kind: KeyEventKind::Press, .. }) = event else { return false };
    match code {
        KeyCode::Char('c') => modifiers.contains(KeyModifiers::CONTROL),
        KeyCode::Char('q') | KeyCode::Esc => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_keys_end_a_run() {
        let key = |code, modifiers| is_end(&Event::Key(KeyEvent::new(code, modifiers)));
        assert!(key(KeyCode::Char('c'), KeyModifiers::CONTROL));
        assert!(key(KeyCode::Char('q'), KeyModifiers::NONE));
        assert!(!key(KeyCode::Char('c'), KeyModifiers::NONE));
        assert!(!is_end(&Event::Resize(1, 1)));
    }
}
