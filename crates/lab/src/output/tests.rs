#![allow(clippy::unwrap_used)]

use resvg::tiny_skia::Pixmap;
use roxmltree::Document;
use serde_json::Value;

use super::*;
use crate::output::test_samples::{HOSTILE, anma_2, bars, clouds, cpu_series, scenario_b};

fn all_kinds() -> Vec<Plot> {
    let text = str::to_owned;
    vec![
        bars("Requests per second", "requests per second"),
        Plot::Cpu { title: text("CPU"), hosts: vec![text("agent1"), text("agent2")], variants: vec![text("sl-on")] },
        Plot::Ternary { title: text("Endings"), process: text("watch"), variants: vec![] },
    ]
}

fn written(run: &mut RunResult, plots: &[Plot]) -> (tempfile::TempDir, Result<(), Error>) {
    let folder = tempfile::tempdir().unwrap();
    let result = write_run(&folder.path().join("run"), run, &cpu_series("sl-on"), plots, &clouds());
    (folder, result)
}

#[test]
fn a_run_has_all_of_its_files() {
    let mut run = scenario_b();
    let (folder, result) = written(&mut run, &all_kinds());
    result.unwrap();
    let path = |name: &str| folder.path().join("run").join(name);
    let files: Vec<_> = run.plots.iter().map(|plot| plot.file.as_str()).collect();
    assert_eq!(files, ["01-requests-per-second", "02-cpu-cssl-sl-migration-on", "03-endings"]);
    for plot in &run.plots {
        let svg = fs::read_to_string(path(&format!("{}.svg", plot.file))).unwrap();
        let root = Document::parse(&svg).unwrap();
        let size = |side: &str| root.root_element().attribute(side).unwrap().parse::<u32>().unwrap();
        let pixels = Pixmap::decode_png(&fs::read(path(&format!("{}.png", plot.file))).unwrap()).unwrap();
        assert_eq!((pixels.width(), pixels.height()), (2 * size("width"), 2 * size("height")));
        let drawn = pixels.pixels().iter().filter(|pixel| pixel.red() < 200).count();
        assert!(drawn > 1000, "{}: {drawn}", plot.file);
    }
    for name in ["figures.csv", "ratios.csv", "cpu.csv"] {
        assert!(csv::Reader::from_path(path(name)).unwrap().records().map(Result::unwrap).count() > 1, "{name}");
    }
}

#[test]
fn the_result_is_read_back() {
    let mut run = scenario_b();
    let (folder, _) = written(&mut run, &all_kinds());
    let json = fs::read(folder.path().join("run/result.json")).unwrap();
    let value: Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(value["verdict"], "exceeded");
    assert_eq!(value["ratios"]["on/off"]["paper"], 1.64);
    let read: RunResult = serde_json::from_slice(&json).unwrap();
    assert_eq!(serde_json::to_value(&read).unwrap(), serde_json::to_value(&run).unwrap());
}

#[test]
fn a_plot_of_an_unknown_figure_is_an_error_after_all_else_is_written() {
    let mut run = scenario_b();
    let (folder, result) = written(&mut run, &[bars("Bars", "mistyped"), bars("Rates", "requests per second")]);
    let error = result.unwrap_err().to_string();
    assert!(error.contains("\"Bars\"") && error.contains("\"mistyped\""), "{error}");
    assert!(folder.path().join("run/01-rates.png").exists());
    assert!(folder.path().join("run/result.json").exists());
}

#[test]
fn a_folder_that_cannot_be_written_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    let error = write_run(&folder.path().join("file"), &mut scenario_b(), &[], &[], &[]).unwrap_err();
    assert!(error.to_string().contains("file"), "{error}");
}

#[test]
fn a_report_shows_the_pictures_of_runs() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = RunResult { name: HOSTILE.to_owned(), title: HOSTILE.to_owned(), ..scenario_b() };
    write_run(&folder.path().join("b"), &mut run, &cpu_series("sl-on"), &all_kinds(), &clouds()).unwrap();
    let lines = Plot::Lines {
        title: HOSTILE.to_owned(),
        figure: "Tc at 1000".to_owned(),
        x: "size".to_owned(),
        series: Some("family".to_owned()),
    };
    write_run(&folder.path().join("2"), &mut anma_2(), &[], &[lines], &[]).unwrap();
    let [html, markdown] = ["report.html", "reproduction.md"].map(|name| folder.path().join(name));
    report(folder.path(), &html, Some(&markdown)).unwrap();
    let page = fs::read_to_string(html).unwrap();
    assert_eq!(page.matches("<svg ").count(), 4);
    assert!(!page.contains("missing or unreadable"));
    assert!(fs::read_to_string(markdown).unwrap().contains("## anma-2\n"));
}

#[test]
fn a_document_has_the_results_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let plots = [bars("Requests per second", "requests per second"), bars("Full handshakes", "full handshakes")];
    let mut hostile = RunResult { name: HOSTILE.to_owned(), ..anma_2() };
    write_run(&folder.path().join("hostile"), &mut hostile, &[], &[], &[]).unwrap();
    let [html, markdown] = ["report.html", "docs.md"].map(|name| folder.path().join(name));
    let entries = |path: &str| -> Vec<_> {
        let mut entries: Vec<_> = fs::read_dir(folder.path().join(path)).unwrap().map(Result::unwrap).collect();
        entries.sort_by_key(fs::DirEntry::file_name);
        entries.iter().map(|entry| entry.file_name().into_string().unwrap()).collect()
    };
    // The plots of the first report are not left behind.
    for plots in [&plots[..], &plots[1..]] {
        write_run(&folder.path().join("b"), &mut scenario_b(), &[], plots, &[]).unwrap();
        report(folder.path(), &html, Some(&markdown)).unwrap();
    }
    assert_eq!(
        (entries("docs"), entries("docs/cssl-b")),
        (vec!["cssl-b".to_owned(), "cssl-b.json".to_owned()], vec!["01-full-handshakes.svg".to_owned()],)
    );
    let document = fs::read_to_string(&markdown).unwrap();
    assert!(document.contains("\n### Plots\n\n![Full handshakes](docs/cssl-b/01-full-handshakes.svg)\n"), "{document}");
    // Also in its order: that of the file of the experiment.
    let [original, copy] =
        ["b/result.json", "docs/cssl-b.json"].map(|path| fs::read(folder.path().join(path)).unwrap());
    assert_eq!(original, copy);
    let error = report(folder.path(), &html, Some(&folder.path().join("docs"))).unwrap_err();
    assert!(error.to_string().contains("needs an extension"), "{error}");
}

/// Writes sample runs and a report into `$LAB_SAMPLES`, for people who look at them.
#[test]
#[ignore = "writes files for people"]
fn samples() {
    use crate::output::test_samples::scenario_a;
    let Some(folder) = std::env::var_os("LAB_SAMPLES").map(PathBuf::from) else { return };
    let lines = |title: &str, figure: &str, series: Option<&str>| Plot::Lines {
        title: title.to_owned(),
        figure: figure.to_owned(),
        x: "size".to_owned(),
        series: series.map(str::to_owned),
    };
    let plots = [all_kinds(), vec![bars("Full handshakes, of 3,000 sessions", "full handshakes")]].concat();
    write_run(&folder.join("cssl-b"), &mut scenario_b(), &cpu_series("sl-on"), &plots, &clouds()).unwrap();
    let rates = [bars(
        "Requests per second in scenario A, where two of three clients have the same server by their addresses (Table 2)",
        "requests per second",
    )];
    write_run(&folder.join("cssl-a"), &mut scenario_a(), &[], &rates, &[]).unwrap();
    let plots = [
        lines("Tc over the size, 1000 connections", "Tc at 1000", Some("family")),
        lines("Tc over the size", "Tc", None),
        bars("Tc", "Tc"),
    ];
    write_run(&folder.join("anma-2"), &mut anma_2(), &[], &plots, &[]).unwrap();
    fs::create_dir_all(folder.join("broken")).unwrap();
    fs::write(folder.join("broken/result.json"), "{").unwrap();
    report(&folder, &folder.join("report.html"), Some(&folder.join("reproduction.md"))).unwrap();
}
