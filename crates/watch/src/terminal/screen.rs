//! The terminal that a view is shown on: all of it, given back when this is dropped or something panics.

use std::io::{self, IsTerminal};
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::View;

/// The terminal.
#[derive(Debug)]
pub struct Screen(DefaultTerminal);

/// What somebody wants who presses a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// The server above.
    Up,
    /// The server below.
    Down,
    /// To see no more.
    End,
}

impl Screen {
    /// Whether there is somebody to show a view to.
    pub fn is_possible() -> bool {
        let able = std::env::var_os("TERM").is_some_and(|name| name != "dumb");
        able && io::stdout().is_terminal() && io::stdin().is_terminal()
    }

    /// Takes the terminal.
    pub fn open() -> io::Result<Self> {
        ratatui::try_init().map(Self)
    }

    /// Shows a view.
    pub fn draw(&mut self, view: &View<'_>) -> io::Result<()> {
        self.0.draw(|frame| frame.render_widget(view, frame.area())).map(drop)
    }

    /// The next key that means something, if one was pressed. Waits for none.
    pub fn key(&self) -> io::Result<Option<Key>> {
        while event::poll(Duration::ZERO)? {
            if let Some(key) = meaning(&event::read()?) {
                return Ok(Some(key));
            }
        }
        Ok(None)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _ = ratatui::try_restore();
    }
}

fn meaning(event: &Event) -> Option<Key> {
    let Event::Key(KeyEvent { code, modifiers, kind: KeyEventKind::Press, .. }) = event else { return None };
    match code {
        KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => Some(Key::End),
        KeyCode::Char('q') | KeyCode::Esc => Some(Key::End),
        KeyCode::Up | KeyCode::Char('k') => Some(Key::Up),
        KeyCode::Down | KeyCode::Char('j') => Some(Key::Down),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_mean_what_people_expect() {
        let key = |code, modifiers| meaning(&Event::Key(KeyEvent::new(code, modifiers)));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Key::End));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::NONE), None);
        assert_eq!(key(KeyCode::Char('q'), KeyModifiers::NONE), Some(Key::End));
        assert_eq!(key(KeyCode::Down, KeyModifiers::NONE), Some(Key::Down));
        assert_eq!(key(KeyCode::Char('k'), KeyModifiers::NONE), Some(Key::Up));
    }
}
