//! The result of a search as one self-contained page of HTML: no network, no script.

use askama::Template;
use watari_bench_report::grid::shown;
use watari_bench_report::page::document;
use watari_bench_report::summary::Run;

use super::curve::Curve;
use super::search::Finding;
use super::sentence::sentence;
use super::svg::picture;

/// The page of a search. `details` is a text of several lines, to stand below the curve.
///
/// External text (the command line, names of files) passes through a template that escapes it.
pub(super) fn page(run: &Run, curve: &Curve, finding: &Finding, details: &str) -> String {
    let content = Content {
        sentence: sentence(finding, curve),
        picture: picture(curve, finding.level),
        details: details.lines().map(shown).collect::<Vec<_>>().join("\n"),
    };
    document("Capacity", run, content.to_string())
}

#[derive(Template)]
#[template(path = "capacity.html")]
struct Content {
    sentence: String,
    /// Trusted markup. The only external data in it are numbers.
    picture: String,
    details: String,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use roxmltree::{Document, ParsingOptions};

    use super::*;
    use crate::capacity::curve::Unit;
    use crate::capacity::curve::tests::point;
    use crate::capacity::search::{Ended, Outcome};

    #[test]
    fn a_page_is_well_formed_whatever_comes_from_outside() {
        let run = Run { command: vec!["<script>'\"&\u{1b}</code>".to_owned()], ..Run::default() };
        let points = vec![point(100, 100.0, Some(2.0), Outcome::Met), point(200, 0.0, None, Outcome::Missed)];
        let curve = Curve { unit: Unit::RequestsPerSecond, points };
        let ended = Ended::Found;
        let finding =
            Finding { level: Some(100), confirmed: true, missed: Some(200), noisy: Vec::new(), runs: 2, ended };
        let page = page(&run, &curve, &finding, "a <b>\n</pre>\u{0}");

        let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
        let document = Document::parse_with_options(&page, options).unwrap();
        let text_of = |name| document.descendants().find(|node| node.has_tag_name(name)).unwrap().text().unwrap();
        assert_eq!(text_of("code"), "<script>'\"&\u{fffd}</code>");
        assert_eq!(text_of("pre"), "a <b>\n</pre>\u{fffd}");
        assert!(page.contains("100 requests/s meet the conditions; 200 do not."), "{page}");
        assert!(page.contains("<svg") && !page.contains("<script"), "{page}");
    }
}
