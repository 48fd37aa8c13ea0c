//! Writes SVG: shapes and texts, with their looks as attributes, so that a page can include several pictures.

use std::fmt::{Display, Formatter, Result as Written, Write};

use crate::output::text;

/// A picture while it is drawn. Coordinates are in pixels from the upper left corner.
pub(super) struct Svg {
    body: String,
}

/// Which end of a text is at its position.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Svg {
    pub(super) fn new() -> Self {
        Self { body: String::new() }
    }

    /// `look` are attributes: `stroke="#ccc"`.
    pub(super) fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), look: &str) {
        self.add(format_args!("<path d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\" {look}/>"));
    }

    pub(super) fn rect(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), look: &str) {
        self.add(format_args!("<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" {look}/>"));
    }

    pub(super) fn circle(&mut self, (x, y): (f64, f64), radius: f64, look: &str) {
        self.add(format_args!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\" {look}/>"));
    }

    /// A line through points.
    pub(super) fn course(&mut self, points: &[(f64, f64)], look: &str) {
        self.add(format_args!("<path d=\"{}\" fill=\"none\" {look}/>", Path(points)));
    }

    /// An area within points.
    pub(super) fn area(&mut self, points: &[(f64, f64)], look: &str) {
        self.add(format_args!("<path d=\"{}Z\" {look}/>", Path(points)));
    }

    /// A line of text. The height of its digits is centred at the position.
    pub(super) fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, size: f64, color: &str, content: &str) {
        let y = y + 0.35 * size;
        let anchor = anchor.name();
        let content = Escaped(content);
        self.add(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\" fill=\"{color}\">{content}</text>"
        ));
    }

    /// The picture. `label` is its text alternative.
    pub(super) fn finish(self, width: f64, height: f64, label: &str) -> String {
        let label = Escaped(label);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" aria-label=\"{label}\" \
             font-family=\"Ubuntu, system-ui, sans-serif\">\n\
             <rect x=\"0\" y=\"0\" width=\"{width:.0}\" height=\"{height:.0}\" fill=\"#ffffff\"/>\n{}</svg>\n",
            self.body
        )
    }

    fn add(&mut self, element: std::fmt::Arguments<'_>) {
        writeln!(self.body, "{element}").expect("a string takes all");
    }
}

impl Anchor {
    fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Middle => "middle",
            Self::End => "end",
        }
    }
}

struct Path<'a>(&'a [(f64, f64)]);

impl Display for Path<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Written {
        self.0
            .iter()
            .enumerate()
            .try_for_each(|(index, (x, y))| write!(f, "{}{x:.1} {y:.1}", if index == 0 { 'M' } else { 'L' }))
    }
}

/// A text in XML, on one line.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Written {
        text::clean(self.0).chars().try_for_each(|c| match c {
            '&' => f.write_str("&amp;"),
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '"' => f.write_str("&quot;"),
            '\n' => f.write_char(' '),
            c => f.write_char(c),
        })
    }
}

/// The width of a text in pixels, about. A viewer may use another font, so it is rather too large.
pub(super) fn width(content: &str, size: f64) -> f64 {
    let share = |c: char| match c {
        'i' | 'l' | 'j' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' | ' ' => 0.33,
        'f' | 't' | 'r' | '(' | ')' | '-' | '/' => 0.42,
        'm' | 'w' | 'M' | 'W' | '%' | '@' => 0.98,
        c if c.is_ascii_uppercase() => 0.72,
        c if c.is_ascii() => 0.64,
        _ => 1.0,
    };
    content.chars().map(share).sum::<f64>() * size
}

pub(super) const INK: &str = "#1a1a1a";
pub(super) const QUIET: &str = "#555555";
pub(super) const GRID: &str = "stroke=\"#dddddd\" stroke-width=\"1\"";
pub(super) const AXIS: &str = "stroke=\"#1a1a1a\" stroke-width=\"1\"";

/// The colours of Okabe and Ito, which differ for colour-blind people. Yellow is left out: it is too light for lines.
pub(super) const COLORS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];
/// Tell lines apart where there is no colour.
pub(super) const DASHES: [&str; 4] = ["none", "8 4", "2 3", "9 3 2 3"];
