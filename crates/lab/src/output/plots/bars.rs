//! A figure: a bar for each variant, with a whisker from the least to the largest value, and the paper's bar below it.

use crate::output::plots::frame::{AXIS_HEIGHT, Area, Key, MARGIN, TEXT, WIDTH, bottom_axis, head, placed};
use crate::output::plots::scale::Scale;
use crate::output::plots::sorted;
use crate::output::plots::svg::{AXIS, Anchor, GRID, INK, QUIET, Svg, width};
use crate::output::text::{NONE, measured, printed, wrapped};
use crate::result::{FigureResult, FigureRow};
use crate::statistics::range;

/// None if no variant has a value.
pub(super) fn draw(title: &str, figure: &FigureResult) -> Option<String> {
    let rows: Vec<_> = sorted(figure).into_iter().filter(|row| row.median.or(row.paper).is_some()).collect();
    let scales = Scales::new(&rows)?;
    let mut svg = Svg::new();
    let top = head(&mut svg, title, &scales.keys()) + if scales.differ() { 34.0 } else { 4.0 };
    let labels: Vec<_> = rows.iter().map(|row| wrapped(&row.title, LABELS_MAX, |line| width(line, TEXT))).collect();
    let height = |(lines, row): (&Vec<String>, &&FigureRow)| height(row).max(lines.len() as f64 * LINE) + GAP;
    let heights: Vec<_> = labels.iter().zip(&rows).map(height).collect();
    let area = area(&labels, top, heights.iter().sum());
    axes(&mut svg, area, &scales, &figure.unit);
    let mut y = area.top;
    for ((row, lines), height) in rows.iter().zip(&labels).zip(&heights) {
        let middle = y + height / 2.0;
        label(&mut svg, area, lines, middle);
        scales.bars(&mut svg, area, row, middle);
        y += height;
    }
    let zero = area.x(scales.ours.place(0.0));
    svg.line((zero, area.top), (zero, area.bottom), AXIS);
    Some(svg.finish(WIDTH, area.bottom + AXIS_HEIGHT, title))
}

/// The scales of our bars and of the paper's. They differ if the machines do, so that the shapes can be compared.
struct Scales {
    ours: Scale,
    paper: Option<Scale>,
}

impl Scales {
    fn new(rows: &[&FigureRow]) -> Option<Self> {
        let ours: Vec<f64> = rows.iter().flat_map(|row| row.measured().chain(row.median)).collect();
        let paper: Vec<f64> = rows.iter().filter_map(|row| row.paper).collect();
        let both = || ours.iter().chain(&paper).copied();
        both().next()?;
        let scales = if super::are_far_apart(&ours, &paper) {
            (Scale::linear(ours.iter().copied()), Scale::linear(paper.iter().copied()))
        } else {
            (Scale::linear(both()), Scale::linear(both()))
        };
        Some(Self { ours: scales.0, paper: (!paper.is_empty()).then_some(scales.1) })
    }

    fn differ(&self) -> bool {
        self.paper.is_some_and(|paper| paper != self.ours)
    }

    fn keys(&self) -> Vec<Key> {
        let key = |name: &str, look: &'static str| Key {
            name: name.to_owned(),
            mark: Box::new(move |svg, (x, y)| svg.rect((x - 10.0, y - 5.0), (20.0, 10.0), look)),
        };
        let paper = if self.differ() { "the paper (upper scale)" } else { "the paper" };
        let ours = key("measured here: median, least to largest", OURS);
        [ours].into_iter().chain(self.paper.map(|_| key(paper, PAPER))).collect()
    }

    /// The bars of a variant around a height.
    fn bars(&self, svg: &mut Svg, area: Area, row: &FigureRow, middle: f64) {
        let top = middle - height(row) / 2.0;
        match row.median {
            Some(median) => our_bar(svg, area, self.ours, row, median, top),
            None => value(svg, (area.x(self.ours.place(0.0)) + 6.0, top + BAR / 2.0), QUIET, NONE),
        }
        if let (Some(scale), Some(paper)) = (self.paper, row.paper) {
            let end = bar(svg, area, scale, paper, top + BAR, PAPER);
            value(svg, (end + 6.0, top + 1.5 * BAR), QUIET, &printed(Some(paper)));
        }
    }
}

/// The height of a variant's bars.
fn height(row: &FigureRow) -> f64 {
    if row.paper.is_some() { 2.0 * BAR } else { BAR }
}

fn our_bar(svg: &mut Svg, area: Area, scale: Scale, row: &FigureRow, median: f64, top: f64) {
    let mut end = bar(svg, area, scale, median, top, OURS);
    if let Some((least, most)) = range(row.measured()).filter(|(least, most)| least < most) {
        let [from, to] = [least, most].map(|value| area.x(scale.place(value)));
        let middle = top + BAR / 2.0;
        svg.line((from, middle), (to, middle), WHISKER);
        for x in [from, to] {
            svg.line((x, middle - 4.0), (x, middle + 4.0), WHISKER);
        }
        end = end.max(to);
    }
    value(svg, (end + 6.0, top + BAR / 2.0), INK, &measured(Some(median)));
}

/// A value beside its bar, in front of the lines of the axis.
fn value(svg: &mut Svg, (x, y): (f64, f64), color: &str, content: &str) {
    svg.rect((x - 2.0, y - 6.0), (width(content, TEXT), 12.0), "fill=\"#ffffff\"");
    svg.text((x, y), Anchor::Start, TEXT, color, content);
}

/// Draws a bar and returns its right end.
fn bar(svg: &mut Svg, area: Area, scale: Scale, value: f64, top: f64, look: &str) -> f64 {
    let [zero, end] = [0.0, value].map(|value| area.x(scale.place(value)));
    svg.rect((zero.min(end), top + 1.0), ((end - zero).abs(), BAR - 2.0), look);
    zero.max(end)
}

fn area(labels: &[Vec<String>], top: f64, height: f64) -> Area {
    let widest = labels.iter().flatten().map(|line| width(line, TEXT)).fold(0.0, f64::max);
    Area { left: MARGIN + widest.min(LABELS_MAX) + 8.0, right: WIDTH - VALUES_WIDTH, top, bottom: top + height }
}

fn axes(svg: &mut Svg, area: Area, scales: &Scales, unit: &str) {
    for (place, _) in placed(scales.ours) {
        svg.line((area.x(place), area.top), (area.x(place), area.bottom), GRID);
    }
    bottom_axis(svg, area, &placed(scales.ours), unit);
    if let Some(paper) = scales.paper.filter(|_| scales.differ()) {
        svg.line((area.left, area.top), (area.right, area.top), AXIS);
        for (place, label) in placed(paper) {
            svg.line((area.x(place), area.top - 4.0), (area.x(place), area.top), AXIS);
            svg.text((area.x(place), area.top - 13.0), Anchor::Middle, TEXT, QUIET, &label);
        }
    }
}

fn label(svg: &mut Svg, area: Area, lines: &[String], middle: f64) {
    let mut y = middle - LINE * (lines.len() as f64 - 1.0) / 2.0;
    for line in lines {
        svg.text((area.left - 8.0, y), Anchor::End, TEXT, INK, line);
        y += LINE;
    }
}

const BAR: f64 = 17.0;
const GAP: f64 = 12.0;
const LINE: f64 = 15.0;
const LABELS_MAX: f64 = 220.0;
/// The place for values right of the longest bar.
const VALUES_WIDTH: f64 = 84.0;
const OURS: &str = "fill=\"#0072b2\"";
const PAPER: &str = "fill=\"#f7e2b5\" stroke=\"#b27a00\" stroke-width=\"1\"";
const WHISKER: &str = "stroke=\"#1a1a1a\" stroke-width=\"1.5\"";
