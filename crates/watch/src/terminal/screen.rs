//! The terminal that shows a view. It takes the whole screen, and restores it when this is dropped or the program
//! panics.

use std::io::{self, IsTerminal};
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::View;

/// The terminal.
#[derive(Debug)]
pub struct Screen(DefaultTerminal);

/// A key that the view handles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// Selects the server above.
    Up,
    /// Selects the server below.
    Down,
    /// Ends the view.
    End,
}

impl Screen {
    /// Whether the process has a terminal that can show a view.
    pub fn is_possible() -> bool {
        let able = std::env::var_os("TERM").is_some_and(|name| name != "dumb");
        able && io::stdout().is_terminal() && io::stdin().is_terminal()
    }

    /// Takes the whole screen.
    pub fn open() -> io::Result<Self> {
        ratatui::try_init().map(Self)
    }

    /// Shows a view.
    pub fn draw(&mut self, view: &View<'_>) -> io::Result<()> {
        self.0.draw(|frame| frame.render_widget(view, frame.area())).map(drop)
    }

    /// The next key that the view handles, if one was pressed. Does not wait.
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
        // If the terminal is gone, there is nothing to restore.
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
