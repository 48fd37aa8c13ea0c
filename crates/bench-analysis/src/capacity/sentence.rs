//! The result of a search as a sentence.

use super::curve::Curve;
use super::search::{Ended, Finding};

pub(super) fn sentence(finding: &Finding, curve: &Curve) -> String {
    let unit = curve.unit.name();
    let Some(level) = finding.level else { return nothing(finding, unit) + &busy(curve) };
    let missed = finding.missed.map_or_else(String::new, |missed| format!("; {missed} do not"));
    let answer = format!("{level} {unit} meet the conditions{missed}.");
    let caveat = match finding.ended {
        Ended::Found | Ended::LowestMissed | Ended::Unanswered => String::new(),
        Ended::GeneratorLimit => " The generator could not produce more, so the server may take more.".to_owned(),
        Ended::HighestMet => " That is the highest configured level: the server may take more.".to_owned(),
        Ended::Unfinished => " The search ended early.".to_owned(),
    };
    let confirmed = if finding.confirmed { "" } else { " The answer was not confirmed." };
    format!("{answer}{caveat}{confirmed}{}{}", noisy(finding), busy(curve))
}

fn nothing(finding: &Finding, unit: &str) -> String {
    match (finding.missed, finding.ended) {
        (_, Ended::Unanswered) => "The server does not respond correctly, not even to single requests.".to_owned(),
        (Some(missed), Ended::GeneratorLimit) => format!("The generator could not produce {missed} {unit}."),
        (Some(missed), _) => format!("Not even {missed} {unit} meet the conditions."),
        (None, _) => "The search ended without a result.".to_owned(),
    }
}

fn noisy(finding: &Finding) -> String {
    listed(&finding.noisy).map_or_else(String::new, |levels| format!(" Measurements disagreed on {levels}."))
}

fn busy(curve: &Curve) -> String {
    let why = "the server was not idle, so the previous load may affect the result";
    listed(&curve.busy()).map_or_else(String::new, |levels| format!(" Before {levels} {why}."))
}

/// Returns `None` for an empty list.
fn listed<'a>(levels: impl IntoIterator<Item = &'a u64>) -> Option<String> {
    let levels: Vec<_> = levels.into_iter().map(ToString::to_string).collect();
    (!levels.is_empty()).then(|| levels.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capacity::curve::tests::point;
    use crate::capacity::curve::{Point, Unit};
    use crate::capacity::search::Outcome;

    fn text_of(level: Option<u64>, missed: Option<u64>, ended: Ended) -> String {
        let finding = Finding { level, confirmed: true, missed, noisy: Vec::new(), runs: 1, ended };
        sentence(&finding, &Curve::new(Unit::RequestsPerSecond))
    }

    #[test]
    fn each_end_has_a_sentence() {
        let found = "400 requests/s meet the conditions; 420 do not.";
        assert_eq!(text_of(Some(400), Some(420), Ended::Found), found);
        let generator = format!("{found} The generator could not produce more, so the server may take more.");
        assert_eq!(text_of(Some(400), Some(420), Ended::GeneratorLimit), generator);
        let highest =
            "400 requests/s meet the conditions. That is the highest configured level: the server may take more.";
        assert_eq!(text_of(Some(400), None, Ended::HighestMet), highest);
        assert_eq!(text_of(None, Some(1), Ended::LowestMissed), "Not even 1 requests/s meet the conditions.");
        assert_eq!(text_of(None, Some(1), Ended::GeneratorLimit), "The generator could not produce 1 requests/s.");
        let unanswered = "The server does not respond correctly, not even to single requests.";
        assert_eq!(text_of(None, None, Ended::Unanswered), unanswered);
        assert_eq!(text_of(None, None, Ended::Unfinished), "The search ended without a result.");
    }

    #[test]
    fn doubts_are_stated() {
        let finding = Finding {
            level: Some(8),
            confirmed: false,
            missed: None,
            noisy: vec![8, 16],
            runs: 3,
            ended: Ended::Unfinished,
        };
        let expected = "8 connections meet the conditions. The search ended early. The answer was not confirmed. \
                        Measurements disagreed on 8, 16. Before 4 the server was not idle, so the previous load may affect \
                        the result.";
        let busy = Point { idle: false, ..point(4, 1.0, None, Outcome::Missed) };
        let curve =
            Curve { unit: Unit::Connections, points: vec![busy.clone(), busy, point(8, 1.0, None, Outcome::Met)] };
        assert_eq!(sentence(&finding, &curve), expected);
    }
}
