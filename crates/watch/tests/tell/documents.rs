use serde::Deserialize;
use watari_watch::tell::{ReceiverFile, receivers};

#[derive(Deserialize)]
struct Config {
    tell: Vec<ReceiverFile>,
}

/// Those of the section on being told.
#[test]
fn examples_are_read() {
    let page = include_str!("../../../../docs/watch.md");
    let section = page.split("\n## ").find(|section| section.starts_with("Being told\n")).unwrap();
    let examples: Vec<&str> = section.split("```toml\n").skip(1).map(|it| it.split("```").next().unwrap()).collect();
    assert!(examples.len() >= 4, "{examples:?}");
    for example in examples {
        let config: Config = toml::from_str(example).unwrap_or_else(|error| panic!("{error}\n{example}"));
        receivers(&config.tell).unwrap_or_else(|error| panic!("{error}\n{example}"));
    }
}
