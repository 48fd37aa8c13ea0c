//! Checks that the examples of `docs/proxy.md` and `docs/cache.md` are valid configurations.

use std::path::Path;

use super::super::model::{Config, Site};

const GUIDES: [&str; 2] = [include_str!("../../../../../docs/proxy.md"), include_str!("../../../../../docs/cache.md")];

/// The tables that go before the examples.
const AGENT: &str = "[node]\nname = \"a1\"\npki = \"pki\"\nmesh = \"192.0.2.1:7001\"\n\
                     [agent]\nlegs = \"192.0.2.1:7101\"\n";
const POOL: &str = "[[agent.proxy.pool]]\nname = \"app\"\norigins = [\"http://10.0.0.1:8080\"]\n";

fn examples() -> impl Iterator<Item = &'static str> {
    let parts = GUIDES.iter().flat_map(|guide| guide.split("```toml\n").skip(1));
    parts.map(|rest| rest.split("```").next().unwrap_or_default())
}

/// The example with the tables that it lacks. In TOML, a table follows the keys of its parent.
fn completed(example: &str) -> String {
    if example.contains("[node]") {
        example.to_owned()
    } else if example.contains("[[agent.proxy.pool]]") {
        [AGENT, example].concat()
    } else if example.starts_with("[agent.proxy.pool.") || example.starts_with("[[agent.proxy.pool.") {
        [AGENT, POOL, example].concat()
    } else {
        [AGENT, example, POOL].concat()
    }
}

#[test]
fn every_example_of_the_guide_is_understood() {
    let mut count = 0;
    for example in examples() {
        let config = Config::parse(Path::new("etc/node.toml"), &completed(example));
        let agent = config.map_or_else(|error| panic!("{error}\n{example}"), |config| config.agent);
        assert!(matches!(agent.map(|agent| agent.site), Some(Site::Proxy(_))), "{example}");
        count += 1;
    }
    assert!(count >= 14, "{count} examples were found");
}
