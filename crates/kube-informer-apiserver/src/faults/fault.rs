//! What can go wrong: every kind of fault, its name and its arguments.

use std::fmt;
use std::mem;
use std::str::FromStr;
use std::time::Duration;

use super::script::{ScriptError, Words, write_duration};

/// One way in which a server, a proxy or a network misbehaves.
///
/// Each kind has a stable lower-case name, which is what it is called in scripts: see [`Fault::name`].
///
/// # Before the answer
///
/// Drawn once for each request. A [`Rule::after`](super::Rule::after) holds the fault back that long.
///
/// | name | what the client sees |
/// | --- | --- |
/// | `refuse` | connection refused; the server never hears of the request |
/// | `cut` | the connection is reset before the answer; the server *has* carried the request out |
/// | `stall` | no answer, ever; the connection stays open and the server never hears of the request |
/// | `delay 100ms` | the request reaches the server that much later |
/// | `unauthorized` | 401 `Unauthorized` |
/// | `forbidden` | 403 `Forbidden` |
/// | `not-found` | 404, "the server could not find the requested resource" |
/// | `method-not-allowed` | 405 `MethodNotAllowed`, as an API without this verb answers |
/// | `gone` | 410 `Expired` as an HTTP status |
/// | `too-many-requests` | 429 without `Retry-After`; with one if written `too-many-requests retry-after 1s` |
/// | `internal-error` | 500 `InternalError` |
/// | `unavailable` | 503 `ServiceUnavailable` |
/// | `timeout` | 504 `Timeout` |
/// | `version-too-large` | 504 `Timeout` with the cause `ResourceVersionTooLarge` and `Retry-After: 1`, for lists and watches |
/// | `reject-streaming-list` | 422 for a watch with `sendInitialEvents`, as a server without streaming lists answers |
/// | `ignore-streaming-list` | `sendInitialEvents` is dropped: an ordinary watch |
/// | `stale-replica 10 behind` | reads that allow it (`resourceVersion=0`, `NotOlderThan`) are answered from up to so many revisions ago |
/// | `restart` | the server restarts first: open watches end, older versions are 410 |
/// | `compact` | the server compacts first: older versions are 410, watches go on |
/// | `restore 10 behind` | the server is first restored from a backup at least so many revisions old: versions go back, watches end |
///
/// # In the answer
///
/// Drawn once for each answer, when its moment has come: after so many events, after so long.
///
/// | name | what the client sees |
/// | --- | --- |
/// | `cut-stream` | the connection is reset between two frames |
/// | `end-stream` | the answer ends early, cleanly, between two frames |
/// | `stall-stream` | the answer falls silent and is not closed |
/// | `expired-event` | a watch gets an `ERROR` event with 410 `Expired`, then ends |
/// | `error-event` | a watch gets an `ERROR` event with 500 `InternalError`, then ends |
/// | `drip 16 bytes per 100ms` | from here on, so many bytes at a time |
/// | `split-frames` | from here on, every byte comes in a frame of its own |
/// | `gzip-members` | every frame is a gzip member of its own, for clients that accept gzip |
/// | `gzip-truncated` | the first gzip member (of a list: all of it) stops half way, and the answer ends cleanly |
///
/// # In an event
///
/// Drawn for each event of a watch and each item of a list that it can befall.
///
/// | name | what the client sees |
/// | --- | --- |
/// | `cut-frame` | half of an event or item, then the connection is reset |
/// | `truncate-frame` | half of an event or item, then the answer ends cleanly |
/// | `no-end-bookmark` | a streaming list without the bookmark that ends it |
/// | `two-end-bookmarks` | a streaming list with two of them |
/// | `no-bookmarks` | a watch without bookmarks of any kind |
/// | `lost-event` | a change that is never told |
/// | `duplicate-event` | the same event twice |
/// | `unknown-object` | one more event: `MODIFIED` of an object that does not exist |
/// | `other-kind` | one more event: `ADDED` of an object of another kind |
/// | `bad-json` | an event that stops half way, though its line does end, or the length of its protobuf frame is right |
/// | `no-metadata` | an event or item with `metadata: 7` (in protobuf: no message): not even its key can be read |
/// | `bad-metadata` | an event or item with `labels: 7`: its key can be read, its metadata cannot |
/// | `bad-body` | an event or item with `spec: 7`: only the metadata can be read |
/// | `bad-version` | an event whose object, or a list whose own `resourceVersion`, is no number |
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Fault {
    /// `refuse`: the connection is refused.
    Refuse,
    /// `cut`: the connection is reset before the answer to a request that was carried out.
    Cut,
    /// `stall`: no answer, ever.
    Stall,
    /// `delay`: the request reaches the server later.
    Delay(Duration),
    /// `unauthorized`: 401.
    Unauthorized,
    /// `forbidden`: 403.
    Forbidden,
    /// `not-found`: 404.
    NotFound,
    /// `method-not-allowed`: 405.
    MethodNotAllowed,
    /// `gone`: 410 as an HTTP status.
    Gone,
    /// `too-many-requests`: 429.
    TooManyRequests {
        /// The value of `Retry-After`, rounded up to whole seconds; none sends no such header.
        retry_after: Option<Duration>,
    },
    /// `internal-error`: 500.
    InternalError,
    /// `unavailable`: 503.
    Unavailable,
    /// `timeout`: 504.
    Timeout,
    /// `version-too-large`: 504 with the cause `ResourceVersionTooLarge`.
    VersionTooLarge,
    /// `reject-streaming-list`: 422 for `sendInitialEvents`.
    RejectStreamingList,
    /// `ignore-streaming-list`: `sendInitialEvents` is dropped.
    IgnoreStreamingList,
    /// `stale-replica`: an older state, for reads that allow it.
    StaleReplica {
        /// How many revisions older at most.
        behind: u64,
    },
    /// `restart`: the server restarts.
    Restart,
    /// `compact`: the server compacts its history.
    Compact,
    /// `restore`: the server is restored from a backup.
    Restore {
        /// How many revisions older at least, as far as there is a backup as old as that.
        behind: u64,
    },
    /// `cut-stream`: reset between two frames.
    CutStream,
    /// `end-stream`: a clean end between two frames.
    EndStream,
    /// `stall-stream`: silence.
    StallStream,
    /// `expired-event`: 410 in the stream.
    ExpiredEvent,
    /// `error-event`: 500 in the stream.
    ErrorEvent,
    /// `drip`: a few bytes at a time.
    Drip {
        /// How many bytes at a time; at least one.
        bytes: usize,
        /// How long before each of them.
        every: Duration,
    },
    /// `split-frames`: one byte a frame.
    SplitFrames,
    /// `gzip-members`: one gzip member a frame.
    GzipMembers,
    /// `gzip-truncated`: gzip that stops half way.
    GzipTruncated,
    /// `cut-frame`: half an object, then a reset.
    CutFrame,
    /// `truncate-frame`: half an object, then a clean end.
    TruncateFrame,
    /// `no-end-bookmark`: a streaming list never says that it is complete.
    NoEndBookmark,
    /// `two-end-bookmarks`: a streaming list says so twice.
    TwoEndBookmarks,
    /// `no-bookmarks`: no bookmark at all.
    NoBookmarks,
    /// `lost-event`: a change that is never told.
    LostEvent,
    /// `duplicate-event`: an event told twice.
    DuplicateEvent,
    /// `unknown-object`: `MODIFIED` of an object that does not exist.
    UnknownObject,
    /// `other-kind`: an object of another kind.
    OtherKind,
    /// `bad-json`: a line that is not JSON, a frame that is not protobuf.
    BadJson,
    /// `no-metadata`: not even the key can be read.
    NoMetadata,
    /// `bad-metadata`: the key can be read, the metadata cannot.
    BadMetadata,
    /// `bad-body`: the metadata can be read, the rest cannot.
    BadBody,
    /// `bad-version`: a resource version that is no number.
    BadVersion,
}

/// When a fault is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Before the answer, once for each request.
    Request,
    /// In the answer, once for each answer.
    Answer,
    /// For each event or item.
    Event,
}

impl Fault {
    /// Every kind once, with arguments that are easy to notice: a simulation draws from these.
    pub const ALL_KINDS: [Self; 43] = [
        Self::Refuse,
        Self::Cut,
        Self::Stall,
        Self::Delay(Duration::from_millis(100)),
        Self::Unauthorized,
        Self::Forbidden,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::Gone,
        Self::TooManyRequests { retry_after: None },
        Self::InternalError,
        Self::Unavailable,
        Self::Timeout,
        Self::VersionTooLarge,
        Self::RejectStreamingList,
        Self::IgnoreStreamingList,
        Self::StaleReplica { behind: 10 },
        Self::Restart,
        Self::Compact,
        Self::Restore { behind: 10 },
        Self::CutStream,
        Self::EndStream,
        Self::StallStream,
        Self::ExpiredEvent,
        Self::ErrorEvent,
        Self::Drip { bytes: 16, every: Duration::from_millis(100) },
        Self::SplitFrames,
        Self::GzipMembers,
        Self::GzipTruncated,
        Self::CutFrame,
        Self::TruncateFrame,
        Self::NoEndBookmark,
        Self::TwoEndBookmarks,
        Self::NoBookmarks,
        Self::LostEvent,
        Self::DuplicateEvent,
        Self::UnknownObject,
        Self::OtherKind,
        Self::BadJson,
        Self::NoMetadata,
        Self::BadMetadata,
        Self::BadBody,
        Self::BadVersion,
    ];

    /// The stable name of the kind, without arguments.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::Cut => "cut",
            Self::Stall => "stall",
            Self::Delay(_) => "delay",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not-found",
            Self::MethodNotAllowed => "method-not-allowed",
            Self::Gone => "gone",
            Self::TooManyRequests { .. } => "too-many-requests",
            Self::InternalError => "internal-error",
            Self::Unavailable => "unavailable",
            Self::Timeout => "timeout",
            Self::VersionTooLarge => "version-too-large",
            Self::RejectStreamingList => "reject-streaming-list",
            Self::IgnoreStreamingList => "ignore-streaming-list",
            Self::StaleReplica { .. } => "stale-replica",
            Self::Restart => "restart",
            Self::Compact => "compact",
            Self::Restore { .. } => "restore",
            Self::CutStream => "cut-stream",
            Self::EndStream => "end-stream",
            Self::StallStream => "stall-stream",
            Self::ExpiredEvent => "expired-event",
            Self::ErrorEvent => "error-event",
            Self::Drip { .. } => "drip",
            Self::SplitFrames => "split-frames",
            Self::GzipMembers => "gzip-members",
            Self::GzipTruncated => "gzip-truncated",
            Self::CutFrame => "cut-frame",
            Self::TruncateFrame => "truncate-frame",
            Self::NoEndBookmark => "no-end-bookmark",
            Self::TwoEndBookmarks => "two-end-bookmarks",
            Self::NoBookmarks => "no-bookmarks",
            Self::LostEvent => "lost-event",
            Self::DuplicateEvent => "duplicate-event",
            Self::UnknownObject => "unknown-object",
            Self::OtherKind => "other-kind",
            Self::BadJson => "bad-json",
            Self::NoMetadata => "no-metadata",
            Self::BadMetadata => "bad-metadata",
            Self::BadBody => "bad-body",
            Self::BadVersion => "bad-version",
        }
    }

    /// Whether the other is of the same kind, whatever the arguments.
    pub fn is_kind(&self, other: &Self) -> bool {
        mem::discriminant(self) == mem::discriminant(other)
    }

    /// When it is drawn: the order of the enum is the order of the stages.
    pub(crate) fn stage(&self) -> Stage {
        match self {
            Self::CutStream
            | Self::EndStream
            | Self::StallStream
            | Self::ExpiredEvent
            | Self::ErrorEvent
            | Self::Drip { .. }
            | Self::SplitFrames
            | Self::GzipMembers
            | Self::GzipTruncated => Stage::Answer,
            Self::CutFrame
            | Self::TruncateFrame
            | Self::NoEndBookmark
            | Self::TwoEndBookmarks
            | Self::NoBookmarks
            | Self::LostEvent
            | Self::DuplicateEvent
            | Self::UnknownObject
            | Self::OtherKind
            | Self::BadJson
            | Self::NoMetadata
            | Self::BadMetadata
            | Self::BadBody
            | Self::BadVersion => Stage::Event,
            _ => Stage::Request,
        }
    }

    /// Reads a name and the arguments that follow it, and leaves the words after them.
    pub(crate) fn read(words: &mut Words<'_>) -> Result<Self, ScriptError> {
        let name = words.next().ok_or_else(|| ScriptError::new("a fault is missing after the colon"))?;
        let kind = Self::ALL_KINDS.into_iter().find(|fault| fault.name() == name).ok_or_else(|| {
            let names: Vec<_> = Self::ALL_KINDS.iter().map(Self::name).collect();
            ScriptError::new(format!("no fault is called {name:?}; there are {}", names.join(", ")))
        })?;
        Ok(match kind {
            Self::Delay(_) => Self::Delay(words.duration("delay")?),
            Self::TooManyRequests { .. } if words.take("retry-after") => {
                Self::TooManyRequests { retry_after: Some(words.duration("retry-after")?) }
            }
            Self::StaleReplica { .. } => Self::StaleReplica { behind: behind(words, name)? },
            Self::Restore { .. } => Self::Restore { behind: behind(words, name)? },
            Self::Drip { .. } => {
                let bytes: usize = words.number("drip")?;
                words.expect("bytes", "drip 16")?;
                words.expect("per", "drip 16 bytes")?;
                Self::Drip { bytes: bytes.max(1), every: words.duration("per")? }
            }
            plain => plain,
        })
    }
}

/// The name, and the arguments if there are any: what [`FromStr`] reads.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::Delay(time) => {
                f.write_str(" ")?;
                write_duration(f, *time)
            }
            Self::TooManyRequests { retry_after: Some(time) } => {
                f.write_str(" retry-after ")?;
                write_duration(f, *time)
            }
            Self::StaleReplica { behind } | Self::Restore { behind } => write!(f, " {behind} behind"),
            Self::Drip { bytes, every } => {
                write!(f, " {bytes} bytes per ")?;
                write_duration(f, *every)
            }
            _ => Ok(()),
        }
    }
}

impl FromStr for Fault {
    type Err = ScriptError;

    fn from_str(text: &str) -> Result<Self, ScriptError> {
        let mut words = Words::new(text);
        let fault = Self::read(&mut words)?;
        match words.next() {
            None => Ok(fault),
            Some(word) => Err(ScriptError::new(format!("{word:?} is no argument of {fault}"))),
        }
    }
}

fn behind(words: &mut Words<'_>, name: &str) -> Result<u64, ScriptError> {
    let revisions = words.number(name)?;
    words.expect("behind", &format!("{name} {revisions}"))?;
    Ok(revisions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_reads_what_it_writes() {
        for fault in Fault::ALL_KINDS {
            assert_eq!(fault.to_string().parse(), Ok(fault));
        }
        let asked = Fault::TooManyRequests { retry_after: Some(Duration::from_secs(3)) };
        assert_eq!(asked.to_string(), "too-many-requests retry-after 3s");
        assert_eq!(asked.to_string().parse(), Ok(asked));
    }

    #[test]
    fn names_are_distinct() {
        let names: std::collections::BTreeSet<_> = Fault::ALL_KINDS.iter().map(Fault::name).collect();
        assert_eq!(names.len(), Fault::ALL_KINDS.len());
    }

    #[test]
    fn a_wrong_name_is_answered_with_the_right_ones() {
        let error = "cut-frames".parse::<Fault>().unwrap_err().to_string();
        assert!(
            error.contains("no fault is called \"cut-frames\"") && error.contains("truncate-frame"),
            "{error}"
        );
        assert!("refuse 3".parse::<Fault>().is_err());
        assert!("drip 3".parse::<Fault>().is_err());
    }
}
