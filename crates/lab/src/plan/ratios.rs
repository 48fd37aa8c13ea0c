//! The ratios of a plan.

use super::{Error, combinations};
use crate::experiment::{Experiment, Figure, Quotient, Ratio};
use crate::variables::{self, Values};

/// A ratio for each combination of its matrix, with what it takes from its figures.
pub(super) fn plan(experiment: &Experiment, ratio: &Ratio) -> Result<Vec<Ratio>, Error> {
    let place = format!("the ratio {}", ratio.name);
    let find = |name: &String| {
        let figure = experiment.figures.iter().find(|figure| figure.name == *name);
        figure.ok_or_else(|| Error::Unknown { place: place.clone(), kind: "figure", name: name.clone() })
    };
    let figures = match (&ratio.figure, &ratio.over_figure) {
        (Some(figure), over_figure) => Some((find(figure)?, find(over_figure.as_ref().unwrap_or(figure))?)),
        (None, None) => None,
        (None, Some(_)) => return Err(Error::NoFigure(ratio.name.clone())),
    };
    let mut planned = Vec::new();
    for combination in combinations(&ratio.matrix) {
        let mut values = Values::new();
        variables::add(&mut values, &combination);
        let filled = fill(ratio, &values).map_err(|error| Error::Variable { place: place.clone(), error })?;
        planned.push(match figures {
            Some((figure, over_figure)) => with_measures(filled, figure, over_figure),
            None => filled,
        });
    }
    Ok(planned)
}

/// The ratio with the values of its variables.
fn fill(ratio: &Ratio, values: &Values) -> Result<Ratio, variables::Error> {
    let fill = |text: &String| variables::fill(text, values);
    let quotient = |quotient: &Quotient| {
        Ok(Quotient { of: fill(&quotient.of)?, over: quotient.over.as_ref().map(fill).transpose()? })
    };
    let peers = ratio.peers.iter().map(|(name, peer)| Ok((name.clone(), quotient(peer)?)));
    Ok(Ratio {
        name: fill(&ratio.name)?,
        ours: quotient(&ratio.ours)?,
        peers: peers.collect::<Result<_, _>>()?,
        ..ratio.clone()
    })
}

/// The ratio of variants with the measures of figures, and the quotient of the paper's values.
fn with_measures(mut ratio: Ratio, figure: &Figure, over_figure: &Figure) -> Ratio {
    let Quotient { of, over } = &ratio.ours;
    let over = over.as_ref().map_or(Some(1.0), |over| over_figure.paper.get(over).copied());
    if let (Some(of), Some(over)) = (figure.paper.get(of), over) {
        ratio.paper.get_or_insert_with(|| rounded(of / over));
        if ratio.source.is_empty() {
            ratio.source.clone_from(&figure.source);
        }
    }
    for quotient in ratio.peers.values_mut().chain([&mut ratio.ours]) {
        quotient.of = format!("{}:{}", quotient.of, figure.measure);
        quotient.over = quotient.over.take().map(|over| format!("{over}:{}", over_figure.measure));
    }
    ratio
}

/// Refuses a ratio that is compared with nothing, and numbers that no ratio can be compared with.
pub(super) fn check(ratio: &Ratio) -> Result<(), Error> {
    let numbers = [ratio.paper, ratio.at_least, ratio.at_most].into_iter().flatten();
    let has_over = |quotient: &Quotient| quotient.over.is_some();
    let why = if numbers.clone().chain([ratio.tolerance]).any(|number| !number.is_finite()) {
        "its paper, tolerance, at-least and at-most have to be finite numbers"
    } else if ratio.tolerance < 0.0 {
        "its tolerance is below 0"
    } else if ratio.at_least.zip(ratio.at_most).is_some_and(|(least, most)| least > most) {
        "its at-least is above its at-most"
    } else if ratio.peers.values().any(|peer| has_over(peer) != has_over(&ratio.ours)) {
        "it and its peers have to be alike: all with over, or none"
    } else if numbers.count() == 0 {
        "it has neither a value of the paper nor a limit: make it a figure"
    } else {
        return Ok(());
    };
    Err(Error::Ratio { ratio: ratio.name.clone(), why })
}

/// To four digits, which is as many as papers print.
fn rounded(quotient: f64) -> f64 {
    format!("{quotient:.3e}").parse().unwrap_or(quotient)
}
