//! The lines of a terminal in which the view is shown.

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

/// Some lines of the terminal that is the standard output, below what is there already. Given back when this is dropped: then the
/// view is gone, and whatever is printed next stands in its place.
///
/// Meanwhile the terminal sends keys as they are pressed, Ctrl-C included, and [`Screen::is_end_wanted`] looks at them.
#[derive(Debug)]
pub struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    /// Where it begins.
    origin: Position,
    /// Given back when all else is.
    _raw: RawMode,
}

/// The terminal does not do what is asked of it.
#[derive(Debug, thiserror::Error)]
#[error("the terminal shows no view: {0}")]
pub struct ScreenError(#[from] io::Error);

impl Screen {
    /// Whether there is somebody to show a view to: the standard output is a terminal that is more than a typewriter, and this
    /// process is in its foreground, since others are stopped when they change it.
    pub fn is_possible() -> bool {
        let able = std::env::var_os("TERM").is_some_and(|name| name != "dumb");
        let foreground = || tcgetpgrp(io::stdout()).is_ok_and(|group| group == getpgrp());
        able && io::stdout().is_terminal() && io::stdin().is_terminal() && foreground()
    }

    /// Takes the lines. Asks the terminal where its cursor is; one that does not answer shows no view.
    pub fn open() -> Result<Self, ScreenError> {
        let raw = RawMode::enter()?;
        let options = TerminalOptions { viewport: Viewport::Inline(HEIGHT) };
        let mut terminal = Terminal::with_options(CrosstermBackend::new(io::stdout()), options)?;
        terminal.hide_cursor()?;
        let origin = terminal.get_frame().area().as_position();
        Ok(Self { terminal, origin, _raw: raw })
    }

    /// Shows a view.
    pub fn draw(&mut self, view: &View<'_>) -> Result<(), ScreenError> {
        let frame = self.terminal.draw(|frame| frame.render_widget(view, frame.area()))?;
        self.origin = frame.area.as_position();
        Ok(())
    }

    /// Whether a key was pressed that means that the run is to end: q, Escape or Ctrl-C. Does not wait for one.
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
        // What stands there now is why this panics.
        if !std::thread::panicking() {
            // A terminal that is gone needs nothing.
            let _ = self.terminal.set_cursor_position(self.origin);
            let _ = self.terminal.backend_mut().clear_region(ClearType::AfterCursor);
        }
        let _ = self.terminal.show_cursor();
    }
}

/// The terminal's raw mode, which ends with this value, or when something panics: before the message, so that it can be read.
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
    // A terminal that is gone needs nothing.
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
