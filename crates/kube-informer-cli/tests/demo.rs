//! `kube-informer demo`: the real program, with a cluster small enough for a test.

use std::process::Command;

fn demo(pods: &str, seconds: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_kube-informer"))
        .args(["demo", "--seconds", seconds, "--pods", pods])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// The number in front of a word.
fn before(text: &str, word: &str) -> u64 {
    let words: Vec<&str> = text.split_whitespace().collect();
    let at = words
        .iter()
        .position(|found| found.trim_end_matches([':', ',']) == word)
        .unwrap_or_else(|| panic!("{text}"));
    words[at - 1].parse().unwrap_or_else(|_| panic!("{word}: {text}"))
}

fn check(text: &str) {
    let requests = text.lines().find(|line| line.trim_start().starts_with("requests")).unwrap();
    let (lists, watches) = (before(&requests.replace(" (streamed)", ""), "LIST"), before(requests, "WATCH"));
    assert_eq!(requests.contains("broke once, and was resumed without a new LIST"), lists == 1, "{text}");
    assert!(watches >= 1, "the connection broke while it was watched: {text}");
    assert!(text.contains("equal to the server's: yes"), "{text}");
    for (sign, what) in [(" + ", "created"), (" ~ ", "Pending → Running"), (" - ", "gone, was")] {
        let told = text.lines().filter(|line| line.contains(sign) && line.contains(what)).count();
        assert!(told > 0, "{what}: {text}");
    }
    for phase in ["Running", "Pending", "unknown"] {
        assert!(!text.contains(&format!("{phase} → {phase}")), "{text}");
    }
}

#[test]
fn sentences_are_true_for_a_small_cluster() {
    check(&demo("50", "4"));
}

/// Its first list takes longer than half of the show.
#[test]
fn sentences_are_true_for_a_large_cluster() {
    check(&demo("4000", "2"));
}
