//! Backups, as users hold them.

use crate::storage::BackupData;

/// A copy of everything a server stored at one revision: see [`ApiServer::backup`](crate::ApiServer::backup).
#[derive(Clone)]
pub struct Backup {
    data: BackupData,
}

/// The revision, not the objects: they can be secrets.
impl std::fmt::Debug for Backup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Backup").field("revision", &self.revision()).finish_non_exhaustive()
    }
}

impl Backup {
    pub(crate) fn new(data: BackupData) -> Self {
        Self { data }
    }

    pub(crate) fn data(&self) -> &BackupData {
        &self.data
    }

    /// The revision it was taken at.
    pub fn revision(&self) -> u64 {
        self.data.revision
    }
}
