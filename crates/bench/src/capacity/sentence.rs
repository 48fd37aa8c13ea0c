//! What a search came to, in a sentence.

use super::curve::Unit;
use super::search::{Ended, Finding};

/// For people.
pub fn sentence(finding: &Finding, unit: Unit) -> String {
    let unit = unit.name();
    let Some(level) = finding.level else { return nothing(finding, unit) };
    let missed = finding.missed.map_or_else(String::new, |missed| format!("; {missed} do not"));
    let answer = format!("{level} {unit} meet the conditions{missed}.");
    let caveat = match finding.ended {
        Ended::Found | Ended::LowestMissed => String::new(),
        Ended::GeneratorLimit => " The generator could not make more, so the server may take more.".to_owned(),
        Ended::HighestMet => " That is the highest level that was to be tried: the server may take more.".to_owned(),
        Ended::Unfinished => " The search ended before it was done.".to_owned(),
    };
    let confirmed = if finding.confirmed { "" } else { " The answer was not confirmed." };
    format!("{answer}{caveat}{confirmed}{}", noisy(finding))
}

fn nothing(finding: &Finding, unit: &str) -> String {
    match (finding.missed, finding.ended) {
        (Some(missed), Ended::GeneratorLimit) => format!("The generator could not make {missed} {unit}."),
        (Some(missed), _) => format!("Not even {missed} {unit} meet the conditions."),
        (None, _) => "The search ended before anything was found.".to_owned(),
    }
}

fn noisy(finding: &Finding) -> String {
    let levels: Vec<_> = finding.noisy.iter().map(ToString::to_string).collect();
    if levels.is_empty() { String::new() } else { format!(" Measurements disagreed on {}.", levels.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(level: Option<u64>, missed: Option<u64>, ended: Ended) -> String {
        let finding = Finding { level, confirmed: true, missed, noisy: Vec::new(), runs: 1, ended };
        sentence(&finding, Unit::RequestsPerSecond)
    }

    #[test]
    fn every_end_is_told() {
        let found = "400 requests/s meet the conditions; 420 do not.";
        assert_eq!(told(Some(400), Some(420), Ended::Found), found);
        let generator = format!("{found} The generator could not make more, so the server may take more.");
        assert_eq!(told(Some(400), Some(420), Ended::GeneratorLimit), generator);
        let highest = "400 requests/s meet the conditions. That is the highest level that was to be tried: the server may take more.";
        assert_eq!(told(Some(400), None, Ended::HighestMet), highest);
        assert_eq!(told(None, Some(1), Ended::LowestMissed), "Not even 1 requests/s meet the conditions.");
        assert_eq!(told(None, Some(1), Ended::GeneratorLimit), "The generator could not make 1 requests/s.");
        assert_eq!(told(None, None, Ended::Unfinished), "The search ended before anything was found.");
    }

    #[test]
    fn doubts_are_told() {
        let finding = Finding {
            level: Some(8),
            confirmed: false,
            missed: None,
            noisy: vec![8, 16],
            runs: 3,
            ended: Ended::Unfinished,
        };
        let expected = "8 connections meet the conditions. The search ended before it was done. The answer was not confirmed. \
                        Measurements disagreed on 8, 16.";
        assert_eq!(sentence(&finding, Unit::Connections), expected);
    }
}
