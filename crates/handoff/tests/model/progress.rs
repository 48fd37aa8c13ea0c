//! Checks that the connection can always continue: a goal can be reached from every reachable state, also after faults,
//! without any further fault.
//!
//! Stateright follows paths forward and cannot express this (in temporal logic: AG EF goal). So this module builds the
//! graph of all states and walks it backward from the goals.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use stateright::Model;

use super::cluster::Cluster;
use super::scenario::Scenario;
use super::steps::Step;

/// Every state of a scenario, by number, in the order of discovery.
struct Graph {
    /// For each state, the states from which a step without a fault leads to it.
    before: Vec<Vec<usize>>,
    /// For each state, one way to it: the previous state and the step. `None` for the first.
    found_by: Vec<Option<(usize, Step)>>,
    goals: Vec<usize>,
}

/// The result of a search for states from which the goal cannot be reached.
pub struct Progress {
    pub states: usize,
    /// The steps to the first state found from which the goal cannot be reached.
    pub stuck: Option<Vec<Step>>,
}

/// Searches for a state from which no steps without faults lead to `goal`.
pub fn explore(scenario: &Scenario, goal: fn(&Cluster) -> bool) -> Progress {
    let graph = Graph::build(scenario, goal);
    let reaches_goal = graph.walk_back();
    let stuck = reaches_goal.iter().position(|reaches| !reaches).map(|state| graph.way_to(state));
    Progress { states: reaches_goal.len(), stuck }
}

impl Graph {
    fn build(scenario: &Scenario, goal: fn(&Cluster) -> bool) -> Self {
        let mut graph = Self { before: Vec::new(), found_by: Vec::new(), goals: Vec::new() };
        let mut numbers = HashMap::new();
        let mut frontier = VecDeque::new();
        for first in scenario.init_states() {
            numbers.insert(fingerprint(&first), graph.add(None));
            frontier.push_back((0, first));
        }
        while let Some((number, cluster)) = frontier.pop_front() {
            if goal(&cluster) {
                graph.goals.push(number);
            }
            for (step, next) in scenario.next_steps(&cluster) {
                let faultless = !step.is_fault();
                let next_number = *numbers.entry(fingerprint(&next)).or_insert_with(|| {
                    let new = graph.add(Some((number, step)));
                    frontier.push_back((new, next));
                    new
                });
                if faultless {
                    graph.before[next_number].push(number);
                }
            }
        }
        graph
    }

    fn add(&mut self, found_by: Option<(usize, Step)>) -> usize {
        self.before.push(Vec::new());
        self.found_by.push(found_by);
        self.before.len() - 1
    }

    /// For each state, whether a goal can be reached from it.
    fn walk_back(&self) -> Vec<bool> {
        let mut reaches_goal = vec![false; self.before.len()];
        let mut pending = self.goals.clone();
        while let Some(state) = pending.pop() {
            if !std::mem::replace(&mut reaches_goal[state], true) {
                pending.extend(&self.before[state]);
            }
        }
        reaches_goal
    }

    fn way_to(&self, mut state: usize) -> Vec<Step> {
        let mut steps = Vec::new();
        while let Some((before, step)) = &self.found_by[state] {
            steps.push(*step);
            state = *before;
        }
        steps.reverse();
        steps
    }
}

/// 64 bits: the chance that any two of a million states share one is about 1 in 40 million.
fn fingerprint(cluster: &Cluster) -> u64 {
    let mut hasher = DefaultHasher::new();
    cluster.hash(&mut hasher);
    hasher.finish()
}
