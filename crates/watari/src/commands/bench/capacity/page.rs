//! What was found and predicted, as one page of HTML that needs nothing else.

use watari_bench::capacity::svg::picture;

use super::Told;

/// What comes from outside (the command line, names of files) is escaped.
pub(super) fn page(told: &Told<'_>) -> String {
    let command = escaped(&told.run.command.join(" "));
    let run = escaped(&format!("Watari {}, {}, {}", told.run.version, told.run.started, told.run.machine));
    let sentence = told.search.map_or_else(String::new, |found| escaped(&found.sentence()));
    let curve = told.search.map_or_else(String::new, |found| picture(&found.curve, found.finding.level));
    let text = escaped(told.to_string().trim_start_matches('\n'));
    format!(
        "{HEAD}<h1>Capacity</h1>\n<p>{sentence}</p>\n<figure>\n{curve}</figure>\n<pre>{text}</pre>\n\
         <footer><p><code>{command}</code></p><p>{run}</p></footer>\n</body>\n</html>\n"
    )
}

const HEAD: &str = r#"<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'"/>
<title>Capacity</title>
<style>
:root { color-scheme: light dark; font-family: system-ui, sans-serif; }
body { max-width: 60rem; margin: 0 auto; padding: 1rem; }
figure { margin: 1rem 0; }
svg { width: 100%; height: auto; }
pre { overflow-x: auto; }
@media (prefers-color-scheme: dark) { :root { --throughput: #7db4e8; --p50: #e8a860; --p99: #f08080; } }
</style>
</head>
<body>
"#;

/// Without meaning in HTML; control characters, which it does not allow, are replaced.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' => escaped.push('\n'),
            control if control.is_control() => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use watari_bench::summary::Run;

    use super::*;

    #[test]
    fn what_comes_from_outside_is_escaped() {
        let run = Run { command: vec!["<script>&\"\x1b".to_owned()], ..Run::default() };
        let page = page(&Told { run: &run, search: None, prediction: None });
        assert!(page.contains("<code>&lt;script&gt;&amp;&quot;\u{fffd}</code>"), "{page}");
        assert!(!page.contains("<script"), "{page}");
    }
}
