//! A figure over a variable: a line for each value of another, with the paper's values as hollow marks.

use crate::output::plots::frame::{
    AXIS_HEIGHT, Area, Key, MARGIN, WIDTH, bottom_axis, head, labels_width, left_axis, right_axis,
};
use crate::output::plots::scale::Scale;
use crate::output::plots::svg::{COLORS, DASHES, INK, Svg};
use crate::output::text::{amount, by_amount};
use crate::result::{FigureResult, FigureRow};
use crate::statistics::range;

/// None if no variant with the variable has a value.
pub(super) fn draw(title: &str, figure: &FigureResult, x: &str, series: Option<&str>) -> Option<String> {
    let rows: Vec<_> = figure.rows.iter().filter(|row| row.matrix.contains_key(x)).collect();
    let (ours, paper) = values(&rows);
    if ours.is_empty() && paper.is_empty() {
        return None;
    }
    let columns = Columns::new(&rows, x);
    let lines = lines(&rows, x, series);
    let (left, right) = scales(&ours, &paper);
    let mut svg = Svg::new();
    let top = head(&mut svg, title, &keys(&lines, !paper.is_empty(), right.is_some())) + 28.0;
    let right_end = WIDTH - 24.0 - right.map_or(0.0, labels_width);
    let area = Area { left: MARGIN + labels_width(left), right: right_end, top, bottom: top + HEIGHT };
    left_axis(&mut svg, area, left, &figure.unit);
    if let Some(right) = right {
        right_axis(&mut svg, area, right, &format!("{} (the paper)", figure.unit));
    }
    bottom_axis(&mut svg, area, &columns.0.iter().map(|(label, at)| (*at, label.clone())).collect::<Vec<_>>(), x);
    for (index, (_, rows)) in lines.iter().enumerate() {
        line(&mut svg, area, (left, right.unwrap_or(left)), index, &columns.points(rows, x));
    }
    Some(svg.finish(WIDTH, area.bottom + AXIS_HEIGHT, title))
}

/// The values of the variable in their order, with places from 0 to 1. Values that are not all numbers are equally far
/// apart.
struct Columns(Vec<(String, f64)>);

impl Columns {
    fn new(rows: &[&FigureRow], x: &str) -> Self {
        let mut values: Vec<_> = rows.iter().map(|row| row.matrix[x].clone()).collect();
        values.sort_by(|a, b| by_amount(a, b));
        values.dedup();
        let amounts: Option<Vec<f64>> = values.iter().map(|value| amount(value)).collect();
        let at = amounts.unwrap_or_else(|| (0..values.len()).map(|index| index as f64).collect());
        let scale = Scale::fitting(at.iter().copied());
        let places: Vec<_> = at.iter().map(|at| scale.place(*at)).collect();
        let (first, last) = (places[0], places[places.len() - 1]);
        let inset = |place: f64| if last > first { 0.03 + 0.94 * (place - first) / (last - first) } else { 0.5 };
        Self(values.into_iter().zip(places.into_iter().map(inset)).collect())
    }

    fn points<'a>(&self, rows: &[&'a FigureRow], x: &str) -> Vec<(f64, &'a FigureRow)> {
        let at =
            |row: &'a FigureRow| self.0.iter().find(|(value, _)| *value == row.matrix[x]).map(|(_, at)| (*at, row));
        let mut points: Vec<_> = rows.iter().filter_map(|row| at(row)).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points
    }
}

type Lines<'a> = Vec<(String, Vec<&'a FigureRow>)>;

/// The rows of each line: those with the same value of `series`, or else with the same title but for the value of `x`.
fn lines<'a>(rows: &[&'a FigureRow], x: &str, series: Option<&str>) -> Lines<'a> {
    let by_title = || grouped(rows, |row| without(&row.title, &row.matrix[x]));
    let Some(series) = series else { return by_title() };
    let name = |value: &String| if amount(value).is_some() { format!("{series} {value}") } else { value.clone() };
    let mut lines = grouped(rows, |row| row.matrix.get(series).map_or_else(|| row.title.clone(), name));
    if lines.iter().any(|(_, rows)| has_twice(rows, x)) {
        return by_title();
    }
    lines.sort_by(|a, b| {
        by_amount(
            &a.1[0].matrix.get(series).cloned().unwrap_or_default(),
            &b.1[0].matrix.get(series).cloned().unwrap_or_default(),
        )
    });
    lines
}

fn grouped<'a>(rows: &[&'a FigureRow], name: impl Fn(&FigureRow) -> String) -> Lines<'a> {
    let mut lines: Lines<'a> = Vec::new();
    for row in rows {
        let name = name(row);
        match lines.iter_mut().find(|(line, _)| *line == name) {
            Some((_, rows)) => rows.push(row),
            None => lines.push((name, vec![row])),
        }
    }
    lines
}

fn has_twice(rows: &[&FigureRow], x: &str) -> bool {
    rows.iter().enumerate().any(|(index, row)| rows[..index].iter().any(|other| other.matrix[x] == row.matrix[x]))
}

/// The title without its last mention of a value: that of the line.
fn without(title: &str, value: &str) -> String {
    let is_whole = |at: usize| {
        let before = title[..at].chars().next_back();
        let after = title[at + value.len()..].chars().next();
        ![before, after].into_iter().flatten().any(|c| c.is_ascii_digit() || c == '.')
    };
    let found = title.rmatch_indices(value).map(|(at, _)| at).find(|at| !value.is_empty() && is_whole(*at));
    let Some(at) = found else { return title.to_owned() };
    let words = format!("{} {}", &title[..at], &title[at + value.len()..]);
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    words.replace(" ,", ",").trim_matches([',', ':', ' ', '-']).to_owned()
}

fn values(rows: &[&FigureRow]) -> (Vec<f64>, Vec<f64>) {
    let ours = rows.iter().flat_map(|row| row.measured().chain(row.median));
    (ours.collect(), rows.iter().filter_map(|row| row.paper).collect())
}

/// The scale of our values, and that of the paper's, if they are far apart.
fn scales(ours: &[f64], paper: &[f64]) -> (Scale, Option<Scale>) {
    if super::are_far_apart(ours, paper) {
        return (Scale::fitting(ours.iter().copied()), Some(Scale::fitting(paper.iter().copied())));
    }
    (Scale::fitting(ours.iter().chain(paper).copied()), None)
}

fn keys(lines: &Lines<'_>, with_paper: bool, own_scale: bool) -> Vec<Key> {
    let ours = lines.iter().enumerate().map(|(index, (name, _))| Key {
        name: name.clone(),
        mark: Box::new(move |svg: &mut Svg, (x, y): (f64, f64)| {
            svg.line((x - 12.0, y), (x + 12.0, y), &stroke(index));
            mark(svg, (x, y), index, COLORS[index % COLORS.len()]);
        }),
    });
    let name = if own_scale { "hollow: the paper (right scale)" } else { "hollow: the paper" };
    let hollow: Key = Key { name: name.to_owned(), mark: Box::new(|svg, place| svg.circle(place, 4.5, &hollow(INK))) };
    ours.chain(with_paper.then_some(hollow)).collect()
}

fn line(svg: &mut Svg, area: Area, (left, right): (Scale, Scale), index: usize, points: &[(f64, &FigureRow)]) {
    let color = COLORS[index % COLORS.len()];
    let place = |at: f64, scale: Scale, value: f64| (area.x(at), area.y(scale.place(value)));
    let medians: Vec<_> = points.iter().filter_map(|(at, row)| Some(place(*at, left, row.median?))).collect();
    svg.course(&medians, &stroke(index));
    for (at, row) in points {
        if let Some((least, most)) = range(row.measured()) {
            let look = format!("stroke=\"{color}\" stroke-width=\"1\"");
            svg.line(place(*at, left, least), place(*at, left, most), &look);
        }
        if let Some(paper) = row.paper {
            mark_with(svg, place(*at, right, paper), index, &hollow(color));
        }
    }
    for point in medians {
        mark(svg, point, index, color);
    }
}

fn stroke(index: usize) -> String {
    let (color, dash) = (COLORS[index % COLORS.len()], DASHES[index % DASHES.len()]);
    format!("stroke=\"{color}\" stroke-width=\"2\" stroke-dasharray=\"{dash}\"")
}

fn hollow(color: &str) -> String {
    format!("fill=\"#ffffff\" stroke=\"{color}\" stroke-width=\"1.5\"")
}

fn mark(svg: &mut Svg, place: (f64, f64), index: usize, color: &str) {
    mark_with(svg, place, index, &format!("fill=\"{color}\""));
}

/// Each line has a shape of its marks: a circle, a square, a triangle, or a diamond.
fn mark_with(svg: &mut Svg, (x, y): (f64, f64), index: usize, look: &str) {
    match index % 4 {
        0 => svg.circle((x, y), 4.5, look),
        1 => svg.rect((x - 4.0, y - 4.0), (8.0, 8.0), look),
        2 => svg.area(&[(x, y - 5.0), (x + 5.0, y + 4.0), (x - 5.0, y + 4.0)], look),
        _ => svg.area(&[(x, y - 5.5), (x + 5.5, y), (x, y + 5.5), (x - 5.5, y)], look),
    }
}

const HEIGHT: f64 = 280.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_line_is_a_title_without_the_value() {
        let names = [("IPv6, 4 KB", "4"), ("IPv4, size 4", "4"), ("14 clients, 4", "4"), ("one", "4"), ("1.4", "4")];
        let names = names.map(|(title, value)| without(title, value));
        assert_eq!(names, ["IPv6, KB", "IPv4, size", "14 clients", "one", "1.4"]);
    }
}
