#![allow(clippy::unwrap_used)]

use std::fs;

use super::*;

const MINIMAL: &str = "
name = 'try'
title = 'A try'
text = ''
rounds = { full = 5, quick = 1 }
[params]
users = { full = 100, quick = 10 }
[[network]]
name = 'net'
ipv4 = '192.0.2.0/24'
[[host]]
name = 'a'
number = 1
networks = ['net']
";

/// The plan of an experiment `try` with this text.
pub(crate) fn plan_of(text: &str, is_quick: bool) -> Result<Plan, Error> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("try.toml");
    fs::write(&path, text).unwrap();
    let options = Options { is_quick, rounds: None, seed: 7, set: BTreeMap::new() };
    Plan::new(catalogue::find(&path.display().to_string())?, options, Path::new("/work"))
}

/// The plan of the minimal experiment with these tables more.
fn plan(more: &str, is_quick: bool) -> Result<Plan, Error> {
    plan_of(&format!("{MINIMAL}{more}"), is_quick)
}

const VARIANT: &str = "[[variant]]\nkey = 'v'\ntitle = 'V'\n";

#[test]
fn every_experiment_of_this_program_has_a_sound_plan() {
    let all = catalogue::all().unwrap();
    assert!(all.len() > 1);
    for experiment in all {
        for is_quick in [false, true] {
            let options = Options { is_quick, rounds: None, seed: 1, set: BTreeMap::new() };
            let plan = Plan::new(catalogue::find(&experiment.name).unwrap(), options, Path::new("/work"));
            let plan = plan.unwrap_or_else(|error| panic!("{}: {error}", experiment.name));
            assert!(!plan.experiment().text.is_empty() && plan.rounds > 0);
            for script in scripts_in(&plan) {
                let is_there = plan.experiment().templates.contains_key(&script);
                assert!(is_there, "{}: no template is {script}", experiment.name);
            }
        }
    }
}

/// The scripts that commands and templates of a plan run.
fn scripts_in(plan: &Plan) -> BTreeSet<String> {
    let texts = plan.templates.values().chain([&plan.found.text]);
    let words = texts.flat_map(|text| text.split(|c: char| c.is_whitespace() || c == '"'));
    let places = ["${work}/", "$here/", "$work/", ")/"];
    let names = words.filter_map(|word| places.iter().find_map(|place| word.strip_prefix(place)));
    let is_script = |name: &&str| !name.contains('/') && Path::new(name).extension().is_some_and(|end| end == "sh");
    names.filter(is_script).map(str::to_owned).collect()
}

#[test]
fn a_digest_is_of_what_runs() {
    let digest = |more: &str, is_quick| plan(&format!("{VARIANT}{more}"), is_quick).unwrap().digest();
    let plain = digest("", false);
    assert_eq!(plain.len(), 64);
    let figure = "[[figure]]\nname = 'f'\nmeasure = 'cpu.a'\n[[ratio]]\nname = 'r'\nof = 'v:cpu.a'\nat-least = 0\n";
    assert_eq!(digest(figure, false), plain, "it is evaluated only");
    assert_eq!(digest("quick = false\n[[variant]]\nkey = 'w'\ntitle = 'W'\n", false), {
        digest("[[variant]]\nkey = 'w'\ntitle = 'W'\n", false)
    });
    assert_ne!(digest("", true), plain, "a parameter has another value");
    assert_ne!(digest("[[step]]\nname = 's'\nhosts = ['a']\nrun = 'true'\n", false), plain);
}

#[test]
fn a_run_names_what_differs_from_the_experiment_of_this_program() {
    let plan = |name: &str, rounds: Option<u32>, set: &[(&str, &str)]| {
        let set = set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Plan::new(catalogue::find(name).unwrap(), Options { is_quick: false, rounds, seed: 1, set }, Path::new(""))
            .unwrap()
    };
    let same = plan("cssl-a", Some(5), &[]);
    assert_eq!((same.changes(), same.folder_name().as_str()), (vec![], "cssl-a"));
    let changed = plan("cssl-a", Some(1), &[("key", "rsa:2048")]);
    assert_eq!(changed.changes(), ["key = rsa:2048", "1 instead of 5 rounds"]);
    assert_eq!(changed.folder_name(), "cssl-a-changed");

    let folder = tempfile::tempdir().unwrap();
    let mine = folder.path().join("mine");
    catalogue::export(&mine).unwrap();
    let copy = mine.join("cssl-a.toml").display().to_string();
    assert_eq!(plan(&copy, None, &[]).changes(), [""; 0]);
    let template = mine.join("watari/agent.toml");
    fs::write(&template, format!("{}# other\n", fs::read_to_string(&template).unwrap())).unwrap();
    let other = plan(&copy, None, &[]);
    assert_eq!(
        (other.changes(), other.folder_name().as_str()),
        (vec!["another cssl-a.toml".to_owned()], "cssl-a-changed")
    );
    assert_eq!(other.difference(&same), Some("templates"));
}

#[test]
fn the_example_of_the_documentation_has_a_sound_plan() {
    let folder = tempfile::tempdir().unwrap();
    let mine = folder.path().join("mine");
    catalogue::export(&mine).unwrap();
    let document = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/lab.md")).unwrap();
    assert_eq!(fs::read_to_string(mine.join("README.md")).unwrap(), document);
    let (_, example) = document.split_once("```toml\n").unwrap();
    let path = mine.join("mine.toml");
    fs::write(&path, example.split_once("```").unwrap().0).unwrap();
    let options = Options { is_quick: false, rounds: None, seed: 1, set: BTreeMap::new() };
    let plan = Plan::new(catalogue::find(&path.display().to_string()).unwrap(), options, Path::new("/work")).unwrap();
    assert_eq!((plan.variants.len(), plan.variants[0].key.as_str()), (2, "10"));
}

#[test]
fn a_matrix_makes_a_variant_for_each_combination() {
    let matrix = "[[variant]]\nkey = '${size}-${n}'\ntitle = '${size} octets'\n[variant.matrix]\nsize = ['1k', '4k']\nn = [1, 2]\n";
    let plan = plan(matrix, false).unwrap();
    let keys: Vec<_> = plan.variants.iter().map(|variant| variant.key.as_str()).collect();
    assert_eq!(keys, ["1k-1", "4k-1", "1k-2", "4k-2"]);
    assert_eq!(plan.variants[1].title, "4k octets");
    assert_eq!(plan.variants[1].matrix["n"], "1");
}

#[test]
fn a_quick_run_has_other_values_and_rounds_and_fewer_variants() {
    let variants = format!("{VARIANT}[[variant]]\nkey = 'long'\ntitle = 'L'\nquick = false\n");
    let (full, quick) = (plan(&variants, false).unwrap(), plan(&variants, true).unwrap());
    assert_eq!((full.rounds, full.variants.len(), full.values["users"].as_str()), (5, 2, "100"));
    assert_eq!((quick.rounds, quick.variants.len(), quick.values["users"].as_str()), (1, 1, "10"));
}

#[test]
fn a_step_on_several_hosts_becomes_several() {
    let steps = format!("{VARIANT}[[step]]\nname = 'load'\nhosts = ['a', 'a']\nrun = 'true'\n");
    let error = plan(&steps, false).unwrap_err();
    assert_eq!(error.to_string(), "two steps are named load@a");
}

#[test]
fn names_that_are_not_there_are_errors() {
    #[track_caller]
    fn refused(more: &str, message: &str) {
        assert_eq!(plan(&format!("{VARIANT}{more}"), false).unwrap_err().to_string(), message);
    }
    refused(
        "[[step]]\nname = 's'\nhosts = ['b']\nrun = 'true'\n",
        "the step s names the host b, which the experiment does not have",
    );
    refused("systems = ['x']\n", "the variant v names the system x, which the experiment does not have");
    refused(
        "[[ratio]]\nname = 'r'\nof = 'v:cpu.a'\nover = 'w:cpu.a'\n",
        "the ratio r names the variant w, which the experiment does not have",
    );
    refused(
        "[[plot]]\nkind = 'bars'\ntitle = 'p'\nfigure = 'f'\n",
        "the plot p names the figure f, which the experiment does not have",
    );
    refused(VARIANT, "two variants are named v");
    refused("[[system]]\nname = 's'\nprocess = []\n[[system]]\nname = 's'\nprocess = []\n", "two systems are named s");
    refused("[[step]]\nname = 's'\nhosts = ['a']\nrun = 'sleep ${t}'\n", "the step s: unknown variable ${t}");
    refused("[[variant]]\nkey = '${n}'\ntitle = ''\n", "the variant ${n}: unknown variable ${n}");
}

#[test]
fn an_unknown_key_and_a_wrong_name_are_errors_with_a_place() {
    let error = plan("colour = 'red'\n", false).unwrap_err().to_string();
    assert!(error.contains("try.toml") && error.contains("colour"), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("other.toml");
    fs::write(&path, format!("{MINIMAL}{VARIANT}")).unwrap();
    let error = catalogue::find(&path.display().to_string()).unwrap_err().to_string();
    assert!(error.ends_with("the experiment is named try, and so belongs in try.toml"), "{error}");
}

#[track_caller]
fn expect_error(more: &str, expected: &str) {
    let error = plan(&format!("{VARIANT}{more}"), false).unwrap_err().to_string();
    assert!(error.contains(expected), "{error}");
}

#[test]
fn files_and_templates_stay_below_their_directories() {
    for path in ["/etc/motd", "../x", "a/../../x", ""] {
        expect_error(&format!("[[file]]\npath = '{path}'\nsize = '1'\n"), "leaves its directory");
    }
    expect_error("[templates]\n'../x' = 'peers/x'\n", "the path ../x leaves its directory");
    expect_error("[templates]\nx = '../peers/x'\n", "the path ../peers/x leaves its directory");
    for size in ["many", "1TB"] {
        expect_error(&format!("[[file]]\npath = 'x'\nsize = '{size}'\n"), &format!("the size {size} of the file x"));
    }
}

#[test]
fn steps_do_not_wait_in_a_circle() {
    let step = |name: &str, after: &str| {
        format!("[[step]]\nname = '{name}'\nhosts = ['a']\nrun = 'true'\nafter = '{after}'\n")
    };
    expect_error(&step("one", "one"), "the step one waits for itself");
    let first = "[[step]]\nname = 'first'\nhosts = ['a']\nrun = 'true'\n";
    expect_error(&[step("one", "two"), step("two", "one"), first.to_owned()].concat(), "the step one waits for itself");
    plan(&format!("{VARIANT}{first}{}{}", step("one", "first"), step("two", "one")), false).unwrap();
}

#[test]
fn a_side_of_a_ratio_has_a_variant_and_a_measure() {
    expect_error("[[ratio]]\nname = 'r'\nof = 'v'\n", "write VARIANT:MEASURE");
    let mistyped = format!("{VARIANT}[[ratio]]\nname = 'r'\nof = 'w:cpu.a'\n");
    assert!(matches!(plan(&mistyped, true), Err(Error::Unknown { .. })), "also in a quick run");
    let full_only = format!("{VARIANT}[[variant]]\nkey = 'w'\ntitle = 'W'\nquick = false\n");
    let plan = plan(&format!("{full_only}[[ratio]]\nname = 'r'\nof = 'w:cpu.a'\nat-least = 0\n"), true).unwrap();
    assert_eq!(plan.variants.len(), 1);
}

#[test]
fn a_matrix_makes_a_ratio_for_each_combination() {
    let ratio = "[[ratio]]\nname = '${of} / v'\nmatrix = { of = ['v', 'w'] }\nof = '${of}:cpu.a'\nover = 'v:cpu.a'\nat-least = 0\n\
                 peers = { other = { of = '${of}:cpu.a', over = 'v:cpu.a' } }\n";
    let plan = plan(&format!("{VARIANT}[[variant]]\nkey = 'w'\ntitle = 'W'\n{ratio}"), false).unwrap();
    let names: Vec<_> = plan.ratios.iter().map(|ratio| ratio.name.as_str()).collect();
    assert_eq!(names, ["v / v", "w / v"]);
    assert_eq!(plan.ratios[1].ours.of, "w:cpu.a");
    assert_eq!(plan.ratios[1].peers["other"].of, "w:cpu.a");
    expect_error(&ratio.replace("'${of} / v'", "'${n} / v'"), "the ratio ${n} / v: unknown variable ${n}");
}

#[test]
fn a_ratio_of_a_figure_has_its_measure_and_the_papers_quotient() {
    let file = |ratio: &str| {
        let variants = format!("{VARIANT}[[variant]]\nkey = 'w'\ntitle = 'W'\n[[variant]]\nkey = 'x'\ntitle = 'X'\n");
        let figure = "[[figure]]\nname = 'f'\nmeasure = 'cpu.a * 2'\npaper = { v = 6, w = 4 }\nsource = 'Table 1'\n\
                      [[figure]]\nname = 'g'\nmeasure = 'cpu.a'\npaper = { v = 2 }\n";
        plan(&format!("{variants}{figure}[[ratio]]\nname = 'r'\nfigure = 'f'\n{ratio}"), false)
            .unwrap()
            .ratios
            .remove(0)
    };
    let printed = file("of = 'v'\nover = 'w'\npeers = { x = { of = 'x', over = 'w' } }\n");
    assert_eq!((printed.paper, printed.source.as_str()), (Some(1.5), "Table 1"));
    assert_eq!(printed.ours.sides().collect::<Vec<_>>(), ["v:cpu.a * 2", "w:cpu.a * 2"]);
    assert_eq!(printed.peers["x"].sides().collect::<Vec<_>>(), ["x:cpu.a * 2", "w:cpu.a * 2"]);
    assert_eq!(file("of = 'v'\n").paper, Some(6.0));
    assert_eq!(file("of = 'w'\nover = 'v'\n").paper, Some(0.6667));
    let other = file("over-figure = 'g'\nof = 'v'\nover = 'v'\n");
    assert_eq!((other.paper, other.ours.over.as_deref()), (Some(3.0), Some("v:cpu.a")));
    let unprinted = file("of = 'x'\nover = 'w'\nat-most = 2\n");
    assert_eq!((unprinted.paper, unprinted.source.as_str()), (None, ""));
    let stated = file("of = 'v'\nover = 'w'\npaper = 1.4\nsource = 'Table 2'\n");
    assert_eq!((stated.paper, stated.source.as_str()), (Some(1.4), "Table 2"));
    expect_error("[[ratio]]\nname = 'r'\nfigure = 'f'\nof = 'v'\n", "the ratio r names the figure f, which");
    expect_error(
        "[[ratio]]\nname = 'r'\nover-figure = 'f'\nof = 'v:cpu.a'\n",
        "the ratio r has over-figure, but no figure",
    );
}

#[test]
fn wrong_names_in_figures_ratios_and_plots_are_errors() {
    let figure = "[[figure]]\nname = 'f'\nmeasure = 'cpu.a'\n";
    let unknown = |table: &str, error: &str| expect_error(&format!("{figure}{table}"), error);
    expect_error(&format!("{figure}paper = {{ w = 1 }}\n"), "the figure f names the variant w");
    expect_error(&format!("{figure}variants = ['w']\n"), "the figure f names the variant w");
    unknown("[[plot]]\nkind = 'bars'\ntitle = 'P'\nfigure = 'g'\n", "the plot P names the figure g");
    let lines = "[[plot]]\nkind = 'lines'\ntitle = 'P'\nfigure = 'f'\nx = 'size'\n";
    unknown(lines, "the plot P names the variable of a matrix size");
    let cpu = "[[plot]]\nkind = 'cpu'\ntitle = 'P'\nhosts = ['a']\nvariants = ['w']\n";
    unknown(cpu, "the plot P names the variant w");
    let ternary = "[[plot]]\nkind = 'ternary'\ntitle = 'P'\nprocess = 'p'\nvariants = ['v']\n";
    unknown(ternary, "the plot P names the process p");
    let ratio = "[[ratio]]\nname = 'r'\nof = 'v:cpu.a'\n";
    unknown(&format!("{ratio}peers = {{ other = {{ of = 'v:cpu.a', ovr = 'v:cpu.a' }} }}\n"), "ovr");
    unknown(&format!("{ratio}ovr = 'v:cpu.a'\n"), "ovr");
}

#[test]
fn a_variant_has_what_is_measured() {
    let figure = |measure: &str| format!("[[figure]]\nname = 'f'\nmeasure = '{measure}'\n");
    expect_error(&figure("rate"), "the figure f: \"rate\" is not a measure");
    expect_error(&figure("cpu.b"), "the figure f measures the host b, which the variant v does not have");
    expect_error(&figure("time.s"), "measures the step s");
    expect_error(&figure("lines.p"), "measures the process p");
    expect_error(&figure("load.rate"), "measures the step with load = true");
    let ratio = "[[ratio]]\nname = 'r'\nof = 'v:cpu.a'\nover = 'v:cpu.a / time.s'\nat-least = 0\n";
    expect_error(ratio, "the ratio r measures the step s");
    let step = "[[step]]\nname = 's'\nhosts = ['a']\nrun = 'true'\n";
    plan(&format!("{VARIANT}{ratio}{step}"), false).unwrap();
}

#[test]
fn hosts_and_routers_are_checked_before_a_run() {
    expect_error("[[host]]\nname = 'b'\nnumber = 2\nnetworks = ['nowhere']\n", "nowhere");
    let router = "[[network]]\nname = 'far'\nipv4 = '198.51.100.0/24'\n\
                  [[router]]\nname = 'wan'\nbetween = ['net', 'far']\nround-trip = '1ms'\nloss = 2.0\n";
    expect_error(router, "the router wan: the loss of the router is 2");
    expect_error(
        "[[host]]\nname = 'b'\nnumber = 2\nnetworks = ['net']\ncpu = 0.001\n",
        "the quota of b is 0.001 cores",
    );
}

#[test]
fn a_number_of_rounds_has_limits() {
    for (rounds, is_valid) in [(0, false), (1, true), (ROUNDS_MAX, true), (ROUNDS_MAX + 1, false), (u32::MAX, false)] {
        let text = MINIMAL.replace("full = 5", &format!("full = {rounds}"));
        let planned = plan_of(&format!("{text}{VARIANT}"), false);
        assert_eq!(planned.is_ok(), is_valid, "{rounds}: {:?}", planned.err());
    }
}

#[test]
fn an_empty_list_is_an_error() {
    expect_error("[[step]]\nname = 's'\nhosts = []\nrun = 'true'\n", "the step s has an empty list of hosts");
    let empty = "key = 'w-${n}'\ntitle = ''\nmatrix = { n = [] }\n";
    expect_error(&format!("[[variant]]\n{empty}"), "the variant w-${n} has an empty list of values");
    let ratio = "[[ratio]]\nname = 'r ${n}'\nmatrix = { n = [] }\nof = 'v:cpu.a'\n";
    expect_error(ratio, "the ratio r ${n} has an empty list of values");
}

#[test]
fn an_empty_command_and_a_step_outside_its_directory_are_errors() {
    expect_error("[[step]]\nname = 's'\nhosts = ['a']\nrun = ' '\n", "the step s has an empty command");
    expect_error("[[step]]\nname = '../s'\nhosts = ['a']\nrun = 'true'\n", "the path ../s leaves its directory");
}

#[test]
fn numbers_of_a_ratio_are_checked() {
    for (numbers, error) in [
        ("tolerance = nan", "finite numbers"),
        ("paper = inf", "finite numbers"),
        ("tolerance = -0.1", "its tolerance is below 0"),
        ("at-least = 2.0\nat-most = 1.0", "its at-least is above its at-most"),
        ("over = 'v:cpu.a'\npeers = { p = { of = 'v:cpu.a' } }", "all with over, or none"),
        ("", "neither a value of the paper nor a limit"),
    ] {
        expect_error(&format!("[[ratio]]\nname = 'r'\nof = 'v:cpu.a'\n{numbers}\n"), error);
    }
}
