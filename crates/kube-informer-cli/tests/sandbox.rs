//! `kube-informer sandbox --kubeconfig`: the real program, in a directory of its own.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A sandbox that runs, or has given up; it is ended with the test.
struct Sandbox(Child);

impl Drop for Sandbox {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn scratch(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("sandbox-{name}"));
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    directory
}

/// Starts a sandbox, and waits until it either runs (its greeting) or has given up (what it said).
fn start(path: &Path) -> (Sandbox, Result<String, String>) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_kube-informer"))
        .args(["sandbox", "--kubeconfig"])
        .arg(path)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut greeting = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut greeting).unwrap();
    let mut said = String::new();
    if greeting.is_empty() {
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    }
    let sandbox = Sandbox(child);
    if greeting.is_empty() { (sandbox, Err(said)) } else { (sandbox, Ok(greeting)) }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_new_file_is_written_for_its_owner_only() {
    let directory = scratch("new");
    let path = directory.join("config");
    let (_sandbox, greeting) = start(&path);
    let greeting = greeting.unwrap();
    let url =
        greeting.split_whitespace().find(|word| word.starts_with("http://")).unwrap().trim_end_matches('.');
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(&format!("server: {url}\n")), "{greeting}{text}");
    assert_eq!(names(&directory), ["config"], "nothing else is left behind");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn a_file_of_somebody_else_is_kept() {
    let directory = scratch("other");
    let path = directory.join("config");
    let precious = "apiVersion: v1\nkind: Config\nusers:\n- name: me\n  user:\n    token: precious\n";
    for text in [precious, "", "kube-informer\n", "# Written by `kube-informer sandbox`"] {
        fs::write(&path, text).unwrap();
        let (_sandbox, result) = start(&path);
        let said = result.expect_err("it must not start");
        assert!(said.contains("will not overwrite") && said.contains("Name a new file"), "{said}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        assert_eq!(names(&directory), ["config"]);
    }
}

#[test]
fn a_file_of_an_earlier_sandbox_is_replaced() {
    let directory = scratch("again");
    let path = directory.join("config");
    let (first, greeting) = start(&path);
    greeting.unwrap();
    drop(first);
    let before = fs::read_to_string(&path).unwrap();
    let (second, greeting) = start(&path);
    greeting.unwrap();
    drop(second);
    let after = fs::read_to_string(&path).unwrap();
    assert_ne!(before, after, "another port");
    // What somebody added to it since makes it theirs.
    fs::write(&path, format!("{after}# mine\n")).unwrap();
    let (_third, result) = start(&path);
    result.expect_err("it must not start");
    assert_eq!(fs::read_to_string(&path).unwrap(), format!("{after}# mine\n"));
}

#[cfg(unix)]
#[test]
fn links_and_directories_are_not_followed() {
    let directory = scratch("links");
    let target = directory.join("target");
    for exists in [false, true] {
        if exists {
            fs::write(&target, "precious").unwrap();
        }
        let link = directory.join(format!("link-{exists}"));
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let (_sandbox, result) = start(&link);
        let said = result.expect_err("it must not start");
        assert!(said.contains("it is a symbolic link"), "{said}");
        assert_eq!(target.exists(), exists);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }
    assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
    start(&directory).1.expect_err("a directory is not a file");
}
