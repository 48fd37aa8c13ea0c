//! Builds the page with npm and esbuild if its sources have changed. Without the feature `page`, there is none.
//!
//! npm works on a copy, so nothing is written to the source tree.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{env, fs, io};

/// The sources of the page in `page/`, without its tests.
const SOURCES: [&str; 6] = ["package.json", "package-lock.json", ".npmrc", "tsconfig.json", "build.mjs", "src"];

fn main() -> ExitCode {
    for source in SOURCES {
        println!("cargo::rerun-if-changed=page/{source}");
    }
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo says where"));
    let built = match env::var_os("CARGO_FEATURE_PAGE") {
        Some(_) => build(Path::new("page"), &out),
        None => write_table("", &out),
    };
    match built {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn build(from: &Path, out: &Path) -> Result<(), String> {
    let page = out.join("page");
    copy_sources(from, &page)
        .map_err(|error| format!("cannot copy the page's sources to {}: {error}", page.display()))?;
    install(&page)?;
    run(&page, "node", &["build.mjs"])?;
    let list =
        fs::read_to_string(page.join("dist/assets.tsv")).map_err(|error| format!("the page's files: {error}"))?;
    write_table(&list, out)
}

fn copy_sources(from: &Path, to: &Path) -> io::Result<()> {
    for built in ["src", "dist"] {
        if to.join(built).exists() {
            fs::remove_dir_all(to.join(built))?;
        }
    }
    fs::create_dir_all(to)?;
    SOURCES.iter().try_for_each(|source| copy(&from.join(source), &to.join(source)))
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    if !from.is_dir() {
        return fs::copy(from, to).map(|_| ());
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        copy(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}

/// Installs the dependencies of the page, unless those of the lock file are installed.
fn install(page: &Path) -> Result<(), String> {
    let lock = fs::read(page.join("package-lock.json")).map_err(|error| error.to_string())?;
    let installed = page.join("node_modules/.installed");
    if fs::read(&installed).is_ok_and(|installed| installed == lock) {
        return Ok(());
    }
    run(page, "npm", &["ci", "--omit=dev"])?;
    fs::write(installed, lock).map_err(|error| error.to_string())
}

fn run(page: &Path, program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).current_dir(page).output().map_err(|error| {
        format!(
            "cannot run {program}: {error}. The page of `watari watch` is built by Node.js (18 or later) and npm; \
             scripts/deps installs both where they are Debian's."
        )
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    Err(format!(
        "the page of `watari watch` cannot be built: `{program} {}` says:\n{}",
        arguments.join(" "),
        String::from_utf8_lossy(&said)
    ))
}

/// Writes the list of files as Rust code. Each line of `list`: path, type, tag, whether it is immutable, file.
fn write_table(list: &str, out: &Path) -> Result<(), String> {
    fs::write(out.join("assets.rs"), table(list, &out.join("page/dist"))).map_err(|error| error.to_string())
}

fn table(list: &str, dist: &Path) -> String {
    let mut table = String::from("const ASSETS: &[Asset] = &[\n");
    for line in list.lines() {
        let [path, content_type, etag, is_immutable, file] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("build.mjs writes five fields, not {line:?}");
        };
        let file = dist.join(file).display().to_string();
        writeln!(
            table,
            "    Asset {{ path: {path:?}, content_type: {content_type:?}, etag: {etag:?}, is_immutable: {is_immutable}, \
             body: include_bytes!({file:?}) }},"
        )
        .expect("a string takes all");
    }
    table + "];\n"
}
