//! Text that fits: lines break between words, and no value is cut.

use ratatui::text::Span;

/// The width of a text, in cells.
pub(super) fn width_of(text: &str) -> usize {
    Span::raw(text).width()
}

/// Breaks a text into lines of at most `width` cells, and keeps numbers beside their units. Only a word that is longer
/// than a line is split.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    let (width, mut lines) = (width.max(1), Vec::new());
    let text = text.replace(" %", "\u{a0}%").replace(" ms", "\u{a0}ms").replace(" UTC", "\u{a0}UTC");
    let mut line = String::new();
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let gap = usize::from(!line.is_empty());
        if width_of(&line) + gap + width_of(word) > width && !line.is_empty() {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        if width_of(&line) > width {
            let mut parts = broken(&line, width);
            line = parts.pop().unwrap_or_default();
            lines.append(&mut parts);
        }
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines.into_iter().map(|line| line.replace('\u{a0}', " ")).collect()
}

/// Splits a word into parts of at most `width` cells.
pub(super) fn broken(word: &str, width: usize) -> Vec<String> {
    let mut parts = vec![String::new()];
    for character in word.chars() {
        let (used, more) =
            (parts.last().map_or(0, |part| width_of(part)), width_of(character.encode_utf8(&mut [0; 4])));
        if used > 0 && used + more > width {
            parts.push(String::new());
        }
        if let Some(part) = parts.last_mut() {
            part.push(character);
        }
    }
    parts
}

/// Replaces control characters: names come from outside, and must not control the terminal.
pub(super) fn printable(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// A name of at most `width` cells, with a mark if it was shortened.
pub(super) fn shortened(name: &str, width: usize) -> String {
    if width_of(name) <= width {
        return name.to_owned();
    }
    let head = broken(name, width.saturating_sub(1)).swap_remove(0);
    head + "…"
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_break_between_words() {
        assert_eq!(wrap("50.0 % of three words", 6), ["50.0 %", "of", "three", "words"]);
        assert_eq!(wrap("a 192.0.2.1:443 b", 8), ["a", "192.0.2.", "1:443 b"]);
        assert_eq!(wrap("", 8), Vec::<String>::new());
        assert_eq!((shortened("sensor", 6), shortened("sensors", 6)), ("sensor".to_owned(), "senso…".to_owned()));
    }

    proptest! {
        #[test]
        fn nothing_is_lost(text in "[a-z0-9.% 本]{0,60}", width in 2..40_usize) {
            let lines = wrap(&text, width);
            prop_assert!(lines.iter().all(|line| width_of(line) <= width));
            let bare = |text: &str| text.replace(' ', "");
            prop_assert_eq!(bare(&lines.concat()), bare(&text));
        }
    }
}
