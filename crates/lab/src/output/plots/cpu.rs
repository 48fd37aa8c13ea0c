//! The CPU use of hosts over time, one picture for each variant.

use std::collections::BTreeMap;

use crate::output::plots::frame::{
    AXIS_HEIGHT, Area, Key, MARGIN, WIDTH, bottom_axis, head, labels_width, left_axis, placed,
};
use crate::output::plots::scale::Scale;
use crate::output::plots::svg::{COLORS, DASHES, Svg};
use crate::output::plots::{selected, variant_title};
use crate::result::{CpuSeries, RunResult};
use crate::statistics::median;

/// The titles and pictures of the variants that have samples.
pub(super) fn draw(
    title: &str,
    hosts: &[String],
    variants: &[String],
    run: &RunResult,
    cpu: &[CpuSeries],
) -> Vec<(String, String)> {
    let keys = selected(variants, cpu.iter().map(|series| series.variant.as_str()));
    let of_variant = |key| {
        let series: Vec<_> = cpu.iter().filter(|series| series.variant == key).collect();
        (key, courses(hosts, &series), unit(&series))
    };
    let shown: Vec<_> = keys.into_iter().map(of_variant).collect();
    let points = shown.iter().flat_map(|(_, courses, _)| courses).flat_map(|(_, course)| course);
    let y = uses_axis(&points.map(|point| point.1).collect::<Vec<_>>());
    let pictures = shown.iter().filter_map(|(key, courses, unit)| {
        let title = format!("{title}: {}", variant_title(run, key));
        let svg = picture(&title, courses, unit, y)?;
        Some((title, svg))
    });
    pictures.collect()
}

/// The CPU use of a host: seconds, and percent.
type Course = Vec<(f64, f64)>;

/// The axis of all pictures, so that they can be compared: to 100 % at least, unless all uses are small.
fn uses_axis(uses: &[f64]) -> Scale {
    let whole = uses.iter().any(|use_| *use_ > SMALL).then_some(100.0);
    Scale::linear(uses.iter().copied().chain(whole))
}

fn picture(title: &str, courses: &[(&str, Course)], unit: &str, y: Scale) -> Option<String> {
    let points = || courses.iter().flat_map(|(_, course)| course);
    points().next()?;
    let x = Scale::linear(points().map(|point| point.0));
    let mut svg = Svg::new();
    let keys: Vec<_> = courses.iter().enumerate().map(|(index, (host, _))| key(index, host)).collect();
    let top = head(&mut svg, title, &keys) + 28.0;
    let area = Area { left: MARGIN + labels_width(y), right: WIDTH - 24.0, top, bottom: top + HEIGHT };
    left_axis(&mut svg, area, y, unit);
    bottom_axis(&mut svg, area, &placed(x), "seconds");
    for (index, (_, course)) in courses.iter().enumerate() {
        let places: Vec<_> = course.iter().map(|(at, use_)| (area.x(x.place(*at)), area.y(y.place(*use_)))).collect();
        svg.course(&places, &look(index));
    }
    Some(svg.finish(WIDTH, area.bottom + AXIS_HEIGHT, title))
}

/// The hosts that have samples, with their CPU use.
fn courses<'a>(hosts: &'a [String], series: &[&'a CpuSeries]) -> Vec<(&'a str, Course)> {
    let hosts = selected(hosts, series.iter().map(|one| one.host.as_str()));
    hosts.into_iter().map(|host| (host, course(host, series))).collect()
}

/// In each second, the median of the rounds.
fn course(host: &str, series: &[&CpuSeries]) -> Course {
    let mut seconds: BTreeMap<i64, Vec<f64>> = BTreeMap::new();
    for one in series.iter().filter(|one| one.host == host) {
        let points = one.points.iter().filter(|(at, cores)| at.is_finite() && cores.is_finite());
        for (at, cores) in points {
            seconds.entry(at.round() as i64).or_default().push(100.0 * cores / one.quota.unwrap_or(1.0));
        }
    }
    seconds.into_iter().filter_map(|(second, uses)| Some((second as f64, median(uses)?))).collect()
}

fn unit(series: &[&CpuSeries]) -> &'static str {
    let rounds = series.iter().any(|one| one.round != series[0].round);
    match (series.iter().all(|one| one.quota.is_some()), rounds) {
        (true, true) => "CPU use, % of the host's quota, median of the rounds",
        (true, false) => "CPU use, % of the host's quota",
        (false, true) => "CPU use, % of the host's quota or of a core, median of the rounds",
        (false, false) => "CPU use, % of the host's quota or of a core",
    }
}

fn key(index: usize, host: &str) -> Key {
    let mark = move |svg: &mut Svg, (x, y): (f64, f64)| svg.line((x - 12.0, y), (x + 12.0, y), &look(index));
    Key { name: host.to_owned(), mark: Box::new(mark) }
}

fn look(index: usize) -> String {
    let (color, dash) = (COLORS[index % COLORS.len()], DASHES[index % DASHES.len()]);
    format!("stroke=\"{color}\" stroke-width=\"2\" stroke-dasharray=\"{dash}\" stroke-linejoin=\"round\"")
}

const HEIGHT: f64 = 240.0;
/// Uses up to this percentage are small: lines of an axis to 100 % would all be flat.
const SMALL: f64 = 25.0;

#[cfg(test)]
mod tests {
    #![allow(clippy::float_cmp, reason = "the numbers are as written")]

    use super::*;

    fn series(round: u32, quota: Option<f64>, cores: f64) -> CpuSeries {
        let points = vec![(1.02, cores), (f64::NAN, 1.0)];
        CpuSeries { variant: "a".to_owned(), round, host: "agent1".to_owned(), quota, points }
    }

    #[test]
    fn a_second_has_the_median_share_of_the_quota() {
        let rounds = [series(1, Some(0.5), 0.25), series(2, Some(0.5), 0.5), series(3, Some(0.5), 0.0)];
        let rounds: Vec<_> = rounds.iter().collect();
        assert_eq!(course("agent1", &rounds), [(1.0, 50.0)]);
        assert_eq!(course("agent2", &rounds), []);
        assert_eq!(course("agent1", &[&series(1, None, 0.25)]), [(1.0, 25.0)]);
    }

    #[test]
    fn the_axis_ends_at_100_percent_unless_all_uses_are_small() {
        let end = |uses: &[f64]| uses_axis(uses).ticks().last().map(|(end, _)| *end);
        assert_eq!([end(&[3.0, 8.0]), end(&[3.0, 30.0]), end(&[150.0])], [Some(8.0), Some(100.0), Some(150.0)]);
    }
}
