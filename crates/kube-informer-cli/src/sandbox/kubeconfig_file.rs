//! Writes the sandbox's kubeconfig, never over a file that a sandbox did not write.
//!
//! kubectl has a flag of the same name that names a file to *read*, so `--kubeconfig ~/.kube/config` is an easy mistake. It must
//! not cost the user's credentials.

use std::ffi::{OsStr, OsString};
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// The first line of every file that is written here.
const MARK: &str = "# Written by `kube-informer sandbox`, which replaces this file when it starts again.\n";
/// A file of ours is far smaller.
const MAX_BYTES: u64 = 64 << 10;
/// How many names are tried for the file that is written first.
const MAX_ASIDE: u32 = 100;

/// Writes the file with mode 0600, at once or not at all.
pub(super) fn write(path: &Path, kubeconfig: &str) -> anyhow::Result<()> {
    let text = format!("{MARK}{kubeconfig}");
    let replaces = may_replace(path, &text)?;
    let Some(name) = path.file_name() else { bail!("cannot write {}: it names no file", path.display()) };
    let written = write_aside(path, name, &text).and_then(|aside| {
        let published = publish(&aside, path, replaces);
        // After a move there is nothing left to remove.
        let _ = fs::remove_file(aside);
        published
    });
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// Writes a new file beside the one that is wanted, because a file moves at once only within one file system.
fn write_aside(path: &Path, name: &OsStr, text: &str) -> io::Result<PathBuf> {
    let mut attempt = 0;
    loop {
        let mut aside = OsString::from(".");
        aside.push(name);
        aside.push(format!(".{}.{attempt}", std::process::id()));
        let aside = path.with_file_name(aside);
        match create(&aside) {
            Ok(mut file) => {
                let filled = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
                return filled.map(|()| aside.clone()).inspect_err(|_| drop(fs::remove_file(&aside)));
            }
            // Somebody else's file, which stays as it is.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempt < MAX_ASIDE => attempt += 1,
            Err(error) => return Err(error),
        }
    }
}

/// Whether there is a file that may be replaced; an error if there is anything else.
fn may_replace(path: &Path, text: &str) -> anyhow::Result<bool> {
    let shown = path.display();
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error).with_context(|| format!("cannot look at {shown}")),
    };
    if metadata.is_symlink() {
        bail!(
            "will not write to {shown}: it is a symbolic link. Name a new file, for example sandbox.kubeconfig"
        );
    }
    if !metadata.is_file() || !is_own(path, text)? {
        bail!(
            "will not overwrite {shown}: no sandbox wrote it. Name a new file, for example sandbox.kubeconfig, \
             or remove this one first. (--kubeconfig says where to write, not what to read.)"
        );
    }
    Ok(true)
}

/// Whether the file is one that a sandbox wrote and that nobody has changed: what a user added must not be lost either.
fn is_own(path: &Path, text: &str) -> anyhow::Result<bool> {
    let mut found = Vec::new();
    let file = fs::File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    file.take(MAX_BYTES)
        .read_to_end(&mut found)
        .with_context(|| format!("cannot read {}", path.display()))?;
    let found = String::from_utf8_lossy(&found);
    // Only the address differs from one sandbox to the next.
    let rest = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| !line.trim_start().starts_with("server:"));
        lines.map(str::to_owned).collect()
    };
    Ok(found.starts_with(MARK) && rest(&found) == rest(text))
}

/// Makes a new file that only its owner can read.
fn create(path: &Path) -> io::Result<fs::File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Gives the file its name. One that appeared there in the meantime is not overwritten.
fn publish(temporary: &Path, path: &Path, replaces: bool) -> io::Result<()> {
    if replaces {
        return fs::rename(temporary, path);
    }
    match fs::hard_link(temporary, path) {
        // Some file systems have no links.
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => fs::rename(temporary, path),
        linked => linked,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_somebody_else_beside_it_is_kept() {
        let id = std::process::id();
        let directory = std::env::temp_dir().join(format!("kube-informer-kubeconfig-{id}"));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        let (path, other) = (directory.join("config"), directory.join(format!(".config.{id}.0")));
        fs::write(&other, "precious").unwrap();
        write(&path, "server: here\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{MARK}server: here\n"));
        assert_eq!(fs::read_to_string(&other).unwrap(), "precious");
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 2);
        fs::remove_dir_all(&directory).unwrap();
    }
}
