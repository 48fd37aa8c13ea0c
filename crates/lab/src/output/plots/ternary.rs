//! Shares of endings on triangles, a dot for each span, one triangle for each variant.

use crate::output::TernaryPoints;
use crate::output::plots::frame::{MARGIN, TEXT, WIDTH, head};
use crate::output::plots::svg::{AXIS, Anchor, GRID, INK, QUIET, Svg, width};
use crate::output::plots::{selected, variant_title};
use crate::output::text::wrapped;
use crate::result::RunResult;

/// None if no variant has a point.
pub(super) fn draw(title: &str, variants: &[String], run: &RunResult, points: &[&TernaryPoints]) -> Option<String> {
    let keys = selected(variants, points.iter().map(|points| points.variant.as_str()));
    let clouds: Vec<_> = keys.into_iter().map(|key| (variant_title(run, key), cloud(key, points))).collect();
    if clouds.iter().all(|(_, cloud)| cloud.is_empty()) {
        return None;
    }
    let columns = clouds.len().min(2);
    let panel = (WIDTH - 2.0 * MARGIN) / columns as f64;
    let mut svg = Svg::new();
    let mut top = head(&mut svg, title, &[]);
    for clouds in clouds.chunks(columns) {
        let names: Vec<_> = clouds.iter().map(|(name, cloud)| caption(name, cloud, panel)).collect();
        let lines = names.iter().map(Vec::len).max().unwrap_or(0);
        for (column, ((_, cloud), name)) in clouds.iter().zip(&names).enumerate() {
            let middle = MARGIN + panel * (column as f64 + 0.5);
            texts(&mut svg, (middle, top + 8.0), name);
            triangle(&mut svg, Triangle::new(middle, top + 16.0 * lines as f64 + 34.0), cloud);
        }
        top += 16.0 * lines as f64 + 34.0 + SIDE * HEIGHT + 62.0;
    }
    Some(svg.finish(WIDTH, top, title))
}

/// The points that are on the triangle, as shares.
fn cloud(key: &str, points: &[&TernaryPoints]) -> Vec<[f64; 3]> {
    let points = points.iter().filter(|points| points.variant == key).flat_map(|points| &points.points);
    let is_sound = |point: &&[f64; 3]| point.iter().all(|share| share.is_finite() && *share >= 0.0);
    let shares = points.filter(is_sound).filter_map(|point| {
        let sum: f64 = point.iter().sum();
        (sum > 0.0).then(|| point.map(|share| share / sum))
    });
    shares.collect()
}

fn caption(name: &str, cloud: &[[f64; 3]], panel: f64) -> Vec<String> {
    let spans = if cloud.len() == 1 { "1 span".to_owned() } else { format!("{} spans", cloud.len()) };
    wrapped(&format!("{name} ({spans})"), panel - 24.0, |line| width(line, 13.0))
}

fn texts(svg: &mut Svg, (x, mut y): (f64, f64), lines: &[String]) {
    for line in lines {
        svg.text((x, y), Anchor::Middle, 13.0, INK, line);
        y += 16.0;
    }
}

/// Where shares are: `S_NORMAL` at the left corner, the clients' aborts at the right one, `TIMEOUT` at the top.
#[derive(Clone, Copy)]
struct Triangle {
    left: f64,
    bottom: f64,
}

impl Triangle {
    fn new(middle: f64, top: f64) -> Self {
        Self { left: middle - SIDE / 2.0, bottom: top + SIDE * HEIGHT }
    }

    fn place(self, [_, aborts, timeout]: [f64; 3]) -> (f64, f64) {
        (self.left + SIDE * (aborts + timeout / 2.0), self.bottom - SIDE * HEIGHT * timeout)
    }
}

fn triangle(svg: &mut Svg, at: Triangle, cloud: &[[f64; 3]]) {
    for share in [0.2, 0.4, 0.6, 0.8] {
        grid(svg, at, share);
    }
    let corners = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]].map(|corner| at.place(corner));
    svg.area(&corners, &format!("fill=\"none\" {AXIS}"));
    let [left, right, top] = corners;
    svg.text((top.0, top.1 - 12.0), Anchor::Middle, TEXT, INK, "TIMEOUT 100 %");
    svg.text((left.0 - 16.0, left.1 + 34.0), Anchor::Start, TEXT, INK, "S_NORMAL 100 %");
    svg.text((right.0 + 16.0, right.1 + 34.0), Anchor::End, TEXT, INK, "client aborts 100 %");
    for point in cloud {
        svg.circle(at.place(*point), 3.5, DOT);
    }
}

/// The lines of a share, each with its label where it begins: `S_NORMAL` below, aborts on the right, `TIMEOUT` on the
/// left.
fn grid(svg: &mut Svg, at: Triangle, share: f64) {
    let rest = 1.0 - share;
    let label = format!("{:.0}", 100.0 * share);
    let mut line = |from: [f64; 3], to: [f64; 3], anchor: Anchor, (dx, dy): (f64, f64)| {
        let (from, to) = (at.place(from), at.place(to));
        svg.line(from, to, GRID);
        svg.text((from.0 + dx, from.1 + dy), anchor, 11.0, QUIET, &label);
    };
    line([share, rest, 0.0], [share, 0.0, rest], Anchor::Middle, (5.0, 11.0));
    line([0.0, share, rest], [rest, share, 0.0], Anchor::Start, (6.0, -4.0));
    line([rest, 0.0, share], [0.0, rest, share], Anchor::End, (-7.0, 0.0));
}

const SIDE: f64 = 280.0;
/// The height of a triangle with sides of 1.
const HEIGHT: f64 = 0.866_025_403_784_438_6;
const DOT: &str = "fill=\"#0072b2\" fill-opacity=\"0.45\" stroke=\"#00304d\" stroke-width=\"0.5\"";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corners_are_those_of_the_paper() {
        let at = Triangle { left: 0.0, bottom: 300.0 };
        assert_eq!(at.place([1.0, 0.0, 0.0]), (0.0, 300.0));
        assert_eq!(at.place([0.0, 1.0, 0.0]), (SIDE, 300.0));
        assert_eq!(at.place([0.0, 0.0, 1.0]), (SIDE / 2.0, 300.0 - SIDE * HEIGHT));
    }

    #[test]
    fn points_that_are_no_shares_are_left_out() {
        let points = vec![[60.0, 35.0, 5.0], [0.0; 3], [f64::NAN, 0.0, 1.0], [-1.0, 100.0, 1.0]];
        let points = TernaryPoints { process: "watch".to_owned(), variant: "a".to_owned(), points };
        assert_eq!(cloud("a", &[&points]).len(), 1);
        assert!(cloud("b", &[&points]).is_empty());
    }
}
