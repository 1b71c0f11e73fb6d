//! The documents name tests; each of them must exist.

use std::path::{Path, PathBuf};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The cells of all table rows of a text, without heads and rules.
fn rows(text: &str) -> Vec<Vec<&str>> {
    let mut rows = Vec::new();
    let mut head = true;
    for line in text.lines() {
        let Some(row) = line.trim().strip_prefix('|').and_then(|line| line.strip_suffix('|')) else {
            head = true;
            continue;
        };
        let row: Vec<&str> = row.split('|').map(str::trim).collect();
        let rule = row.iter().all(|cell| !cell.is_empty() && cell.chars().all(|c| c == '-' || c == ':'));
        if !head && !rule {
            rows.push(row);
        }
        head = false;
    }
    rows
}

/// The paths of tests in a cell: `module::name`, in backticks.
fn tests(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).filter(|path| path.contains("::")).collect()
}

/// Where a test may be: a file of `tests/`, or a module of `src/` with its tests inside or beside it.
fn exists(path: &str) -> bool {
    let (krate, path) = ["kube_wire", "kube_informer_apiserver"]
        .into_iter()
        .find_map(|krate| Some((krate, path.strip_prefix(krate)?.strip_prefix("::")?)))
        .unwrap_or(("kube_informer", path));
    let krate = repository().join("crates").join(krate.replace('_', "-"));
    let mut modules: Vec<&str> = path.split("::").collect();
    let name = modules.pop().expect("a path has an end");
    let inside: Vec<&str> = modules.iter().copied().filter(|module| *module != "tests").collect();
    let candidates = [
        krate.join("tests").join(modules.join("/")).with_extension("rs"),
        krate.join("tests").join(modules.join("/")).join("main.rs"),
        krate.join("src").join(modules.join("/")).with_extension("rs"),
        krate.join("src").join(inside.join("/")).with_extension("rs"),
    ];
    candidates.iter().any(|file| std::fs::read_to_string(file).is_ok_and(|source| is_test(&source, name)))
}

/// Whether a source has a function of this name, marked as a test: any other function would never run.
fn is_test(source: &str, name: &str) -> bool {
    let mut marked = false;
    for line in source.lines().map(str::trim) {
        if line.contains(&format!("fn {name}(")) {
            return marked;
        }
        // Other attributes may stand between.
        marked = line.starts_with("#[test]")
            || line.starts_with("#[tokio::test")
            || (marked && line.starts_with("#["));
    }
    false
}

#[test]
fn every_test_that_the_parity_table_names_exists() {
    let text = std::fs::read_to_string(repository().join("docs/parity.md")).unwrap();
    let rows = rows(&text);
    assert!(rows.len() > 150, "only {} rows", rows.len());
    for row in &rows {
        let [upstream, ours, note] = row[..] else { panic!("{row:?} has not three cells") };
        assert!(upstream.starts_with('`') && !note.is_empty(), "{row:?}");
        let named = tests(ours);
        assert!(!named.is_empty() || ours == "–", "{upstream} is answered by neither a test nor a dash");
        for test in named {
            assert!(exists(test), "{upstream}: there is no test {test}");
        }
    }
}

#[test]
fn every_test_that_the_tour_names_exists() {
    let text = std::fs::read_to_string(repository().join("docs/tour.md")).unwrap();
    let table = text.rfind("| row | test |").expect("the tour ends with a table of rows and tests");
    for row in rows(&text[table..]) {
        let named = tests(row[1]);
        assert!(!named.is_empty(), "{} names no test", row[0]);
        for test in named {
            assert!(exists(test), "{}: there is no test {test}", row[0]);
        }
    }
}

#[test]
fn a_test_that_does_not_exist_is_found_out() {
    assert!(exists("docs::a_test_that_does_not_exist_is_found_out"));
    assert!(exists("key::tests::a_namespace_is_one_range"));
    assert!(!exists("docs::a_test_that_does_not_exist"));
    assert!(!exists("docs::is_test"), "it is a function, and no test");
    assert!(!exists("keys::tests::a_namespace_is_one_range"));
}
