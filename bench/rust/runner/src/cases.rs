//! The cases, and what they have in common: who takes part, and in which order.

pub(crate) mod gzip;
pub(crate) mod memory;
pub(crate) mod million;
pub(crate) mod queue;
pub(crate) mod readers;
pub(crate) mod reads;
pub(crate) mod recover;
pub(crate) mod restart;
pub(crate) mod sync;
pub(crate) mod watch;
pub(crate) mod worst;

use std::process::Command;

use crate::settings::Settings;

/// A library with certain settings.
pub(crate) struct Participant {
    pub(crate) name: &'static str,
    program: &'static str,
    options: &'static [&'static str],
}

const fn participant(
    name: &'static str,
    program: &'static str,
    options: &'static [&'static str],
) -> Participant {
    Participant { name, program, options }
}

/// Everybody, for cases with a server.
pub(crate) const EVERYBODY: &[Participant] = &[
    participant("ours", "bench-ours", &[]),
    participant("ours_decoded", "bench-ours", &["--decode"]),
    participant("client_go", "bench-go", &[]),
    participant("client_go_stripped", "bench-go", &["--strip"]),
    participant("kube_rs", "bench-kube-rs", &[]),
    participant("kube_rs_tuned", "bench-kube-rs", &["--tuned"]),
];

/// One of each, for cases that are about one component.
pub(crate) const LIBRARIES: &[Participant] = &[
    participant("ours", "bench-ours", &[]),
    participant("client_go", "bench-go", &[]),
    participant("kube_rs", "bench-kube-rs", &[]),
];

/// What the settings of the participants mean.
pub(crate) const WHO: &str = "ours: defaults (streaming list, protobuf, packed; managedFields dropped); ours_decoded: the handler decodes \
     every object; client_go: protobuf, gzip, streaming list; client_go_stripped: managedFields dropped by a transform; kube_rs: defaults (pages of \
     500, JSON); kube_rs_tuned: streaming list, managedFields dropped by modify";

impl Participant {
    pub(crate) fn command(&self, settings: &Settings, case: &str) -> Command {
        let mut command = Command::new(settings.program(self.program));
        command.arg(case).args(self.options);
        command
    }
}

/// The participants in the order of a round: every second round goes backwards.
pub(crate) fn in_order(participants: &[Participant], round: usize) -> Vec<&Participant> {
    if round.is_multiple_of(2) { participants.iter().collect() } else { participants.iter().rev().collect() }
}
