//! Excerpts of untrusted or long texts for messages.

/// The beginning of `text`, short enough for a message.
pub fn excerpt(text: &str) -> String {
    match text.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

const CHARS_MAX: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(excerpt(&"é".repeat(CHARS_MAX)), "é".repeat(CHARS_MAX));
        assert_eq!(excerpt(&"é".repeat(CHARS_MAX + 1)), format!("{}...", "é".repeat(CHARS_MAX)));
    }
}
